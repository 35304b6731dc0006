// Translate: the result, the search tree, the computation step by step, and the alignment.
import { area, busy, button, cells, choice, json, kept, labelled, linked, make, nothing, notes, number, remember, row, some, table, valid } from "./ui.js";
import { folded, frame, show } from "./charts.js";
import { pictureOf, savers } from "./downloads.js";

export const title = "Translate";
export function open(main) {
  if (!some("translate")) return nothing(main, "can translate", "ensue fit transformer dates --out runs/dates");
  const model = choice("model", "translate"), text = kept("text", area("Sentence", "4 March 1999")), beam = kept("beam", number(4, 1, 16, 1));
  const output = make("div", { "aria-live": "polite" }), more = make("div");
  const fresh = () => { remember({ tree_step: "", steps_step: "" }); return translate(); };
  const translate = () => busy(output, async () => {
    const line = text.value.replaceAll("\n", " ").trim();
    if (!line) return output.replaceChildren(make("p", {}, "Type a sentence."));
    more.replaceChildren();
    valid(beam);
    const form = { model: model.value, lines: [line], beam: +beam.value, nbest: +beam.value };
    const response = await json("/api/translate", form), best = response.translations[0];
    const rows = best.nbest.map((one) => cells(one.score, one.log_prob, one.text));
    const whole = make("div", {}, make("p", { className: "result" }, best.text), table(["score", "log P", "translation"], rows));
    output.replaceChildren(whole, ...notes(response), savers("translation", () => response, () => pictureOf(whole, `${form.model}: ${line}`)));
    const of = { model: model.value, text: line, beam: beam.value };
    more.replaceChildren(
      folded("Search tree, step by step", (where) => where.append(frame("tree", of, "Search tree")), { open: true, key: "tree_open" }),
      folded("Encoding and decoding, step by step", (where) => where.append(frame("steps", of, "Encoding and decoding")), { key: "steps_open" }),
      // last, because its height is not known in advance and would shift the sections below it
      folded("Alignment: source words that each target word attends to", (where) => busy(where, () => show("alignment", { models: [model.value], text: line }, where)), { open: true, key: "alignment_open" }));
  });
  main.replaceChildren(row(labelled("model", model), labelled("beam", beam)), text, row(button("Translate", fresh, { className: "main" })), output, more);
  if (linked("steps_step") && !linked("steps_open")) remember({ steps_open: "1" }); // open the section that the step belongs to
  if (text.value.trim()) translate();
}

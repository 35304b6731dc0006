// Translate: the result, the search tree opened step by step, how it was computed, and the alignment.
import { area, busy, button, cells, choice, json, kept, labelled, linked, make, noted, nothing, number, remember, row, some, table, valid } from "./kit.js";
import { folded, frame, show } from "./charts.js";
import { pictureOf, savers } from "./saving.js";

export const title = "Translate";
export function open(main) {
  if (!some("translate")) return nothing(main, "translates", "ensue fit transformer dates --out runs/dates");
  const model = choice("model", "translate"), text = kept("text", area("Sentence", "4 March 1999")), beam = kept("beam", number(4, 1, 16, 1));
  const answer = make("div", { "aria-live": "polite" }), more = make("div");
  const fresh = () => { remember({ tree_step: "", steps_step: "" }); return translate(); };
  const translate = () => busy(answer, async () => {
    const line = text.value.replaceAll("\n", " ").trim();
    if (!line) return answer.replaceChildren(make("p", {}, "Type a sentence."));
    more.replaceChildren();
    valid(beam);
    const form = { model: model.value, lines: [line], beam: +beam.value, nbest: +beam.value };
    const found = await json("/api/translate", form), best = found.translations[0];
    const rows = best.nbest.map((one) => cells(one.score, one.log_prob, one.text));
    const whole = make("div", {}, make("p", { className: "result" }, best.text), table(["score", "log P", "translation"], rows));
    answer.replaceChildren(whole, ...noted(found), savers("translation", () => found, () => pictureOf(whole, `${form.model}: ${line}`)));
    const of = { model: model.value, text: line, beam: beam.value };
    more.replaceChildren(
      folded("The search: a tree that opens step by step", (where) => where.append(frame("tree", of, "The search tree")), { open: true, key: "tree_open" }),
      folded("Encoding and decoding, step by step", (where) => where.append(frame("steps", of, "Encoding and decoding")), { key: "steps_open" }),
      // last, since nobody knows how tall it will be: what stood below it would move away under the pointer when it comes
      folded("The alignment: where each word looks", (where) => busy(where, () => show("alignment", { models: [model.value], text: line }, where)), { open: true, key: "alignment_open" }));
  });
  main.replaceChildren(row(labelled("model", model), labelled("beam", beam)), text, row(button("Translate", fresh, { className: "main" })), answer, more);
  if (linked("steps_step") && !linked("steps_open")) remember({ steps_open: "1" }); // a step that cannot be seen is none
  if (text.value.trim()) translate();
}

// Tasks: classification, tagging, question answering, multiple choice, masked tokens and forecasts.
import { area, bars, busy, button, find, json, kept, labelled, make, nothing, notes, options, registry, row, shade, visible } from "./ui.js";
import { seriesEditor } from "./series_editor.js";
import { pictureOf, savers } from "./downloads.js";

const CAPABILITIES = ["predict", "fill", "forecast"];
const FIELDS = { // the fields of a task, where they are not just a text; "lines" is a text per line
  tag: [{ key: "text", name: "Sentence, words separated by spaces" }],
  pair: [{ key: "text", name: "First text" }, { key: "second", name: "Second text" }],
  regress: [{ key: "text", name: "First text" }, { key: "second", name: "Second text (if the run compares two)", optional: true }],
  answer: [{ key: "text", name: "Question" }, { key: "second", name: "Passage" }],
  choose: [{ key: "text", name: "Context" }, { key: "second", name: "Choices, one per line", lines: true }],
};

export const title = "Tasks";
export function open(main) {
  const runs = registry.runs.filter((one) => one.can.some((capability) => CAPABILITIES.includes(capability)));
  if (!runs.length) return nothing(main, "has a task", "ensue fit classify train.tsv --model lstm --out runs/labels");
  const model = options("model", Object.fromEntries(runs.map((one) => [one.id, `${one.id} (${one.task}, ${one.system})`])));
  const container = make("div");
  const choose = (linked) => {
    const run = find(model.value);
    if (run.can.includes("forecast")) seriesEditor(container, run);
    else showTask(container, run, linked);
  };
  model.addEventListener("input", () => choose(false));
  main.replaceChildren(row(labelled("model", model)), container);
  choose(true);
}

/** Input fields and the model's prediction; a link that fills them runs it at once. */
function showTask(container, model, linked) {
  const masked = model.can.includes("fill");
  const inputs = FIELDS[model.task] ?? [{ key: "text", name: masked ? "Text with [MASK] tokens" : "Text" }];
  const fields = inputs.map(({ key, name }) => kept(key, area(name)));
  const output = make("div", { "aria-live": "polite" });
  const go = () => busy(output, async () => {
    const texts = fields.map((field) => field.value.replaceAll("\t", " "));
    if (!texts[0].trim()) return output.replaceChildren(make("p", {}, "Type a text."));
    if (masked && !/\[MASK\]|<mask>/.test(texts[0])) return output.replaceChildren(make("p", {}, "Put [MASK] in place of a word."));
    const parts = inputs.flatMap(({ lines }, i) => (lines ? filledLines(texts[i]) : i && !texts[i].trim() ? [] : [texts[i]])); // joined by tabs, as in data files
    const response = masked ? await json("/api/fill", { model: model.id, text: fields[0].value }) : await json("/api/predict", { model: model.id, texts: [parts.join("\t")] });
    const prediction = masked ? response : response.predictions[0];
    const shown = showPrediction(prediction, texts), question = "answer" in prediction ? fields.slice(0, 1) : fields; // the passage is part of the answer
    output.replaceChildren(shown, ...notes(response), savers(model.task, () => prediction, () => pictureOf(shown, `${model.id}: ${question.map((field) => field.value).join("\n")}`)));
  });
  container.replaceChildren(...fields.map((field, i) => labelled(inputs[i].name, field)), row(button("Predict", go, { className: "main" })), output);
  if (linked && fields.every((field, i) => field.value.trim() || inputs[i].optional)) go();
}
const filledLines = (text) => text.split("\n").filter((line) => line.trim());

/** A prediction, whose fields tell its kind. */
function showPrediction(prediction, texts) {
  if ("gaps" in prediction) return filled(prediction);
  if ("tags" in prediction) return tagged(prediction);
  if ("answer" in prediction) return answered(prediction, texts[1]);
  if ("probabilities" in prediction) {
    const { probabilities } = prediction, choices = filledLines(texts[1] ?? "");
    const shares = Array.isArray(probabilities) ? probabilities.map((p, i) => [choices[i], p]) : Object.entries(probabilities);
    const sorted = shares.sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value }));
    return make("div", {}, make("p", { className: "result" }, String(prediction.label ?? prediction.text)), bars(sorted));
  }
  if ("value" in prediction) return make("p", { className: "result" }, prediction.value.toFixed(3));
  return make("p", {}, prediction.empty ? "The text is empty." : JSON.stringify(prediction));
}
/** Entities as coloured spans with the name of their type. */
function tagged({ words, tags }) {
  const kind = (tag) => (tag === "O" ? "" : tag.replace(/^[BIES]-/, ""));
  const kinds = [...new Set(tags.map(kind).filter(Boolean))];
  const groups = [];
  words.forEach((word, at) => {
    const own = kind(tags[at]), last = groups.at(-1);
    if (own && last?.kind === own && /^[IE]-/.test(tags[at])) last.words.push(word);
    else groups.push({ kind: own, words: [word] });
  });
  const parts = groups.flatMap((group) => {
    if (!group.kind) return [`${group.words.join(" ")} `];
    const span = make("mark", { className: "span" }, group.words.join(" "), make("sub", {}, group.kind));
    span.style.setProperty("--shade", shade(kinds.indexOf(group.kind)));
    return [span, " "];
  });
  return make("p", { className: "text tagged" }, ...parts);
}
/** The passage with the answer highlighted. */
function answered({ answer, start, stop }, passage) {
  const letters = Array.from(passage), cut = (from, to) => letters.slice(from, to).join(""); // offsets count characters, not UTF-16 units
  const text = answer ? [cut(0, start), make("mark", {}, cut(start, stop)), cut(stop)] : [passage];
  return make("div", {}, make("p", { className: "result" }, answer || "no answer in the passage"), make("p", { className: "text" }, ...text));
}
function filled({ text, gaps }) {
  const lists = gaps.map((gap, at) => make("section", { className: "card" }, make("h2", {}, `mask ${at + 1}`), bars(gap.map((one) => ({ name: visible(one.token), value: one.probability })))));
  return make("div", {}, make("p", { className: "result" }, text), make("div", { className: "cards" }, ...lists));
}

// Tasks: classification, tagging, question answering, multiple choice, masked tokens and forecasts.
import { area, bars, busy, button, find, json, kept, labelled, make, nothing, notes, registry, row, shade, visible } from "./ui.js";
import { pad } from "./series_editor.js";
import { pictureOf, savers } from "./downloads.js";

const ABLE = ["predict", "fill", "forecast"];
const FIELDS = {
  pair: [["text", "First text"], ["second", "Second text"]],
  regress: [["text", "First text"], ["second", "Second text (if the run compares two)"]],
  answer: [["text", "Question"], ["second", "Passage"]],
  choose: [["text", "Context"], ["second", "Choices, one per line"]],
};

export const title = "Tasks";
export function open(main) {
  const able = registry.runs.filter((one) => one.can.some((can) => ABLE.includes(can)));
  if (!able.length) return nothing(main, "has a task", "ensue fit classify train.tsv --model lstm --out runs/labels");
  const model = kept("model", make("select", {}, ...able.map((one) => make("option", { value: one.id }, `${one.id} (${one.task}, ${one.system})`))));
  if (model.selectedIndex < 0) model.selectedIndex = 0;
  const place = make("div");
  const choose = (linked) => {
    const one = find(model.value);
    if (one.can.includes("forecast")) pad(place, one);
    else showTask(place, one, linked);
  };
  model.addEventListener("input", () => choose(false));
  main.replaceChildren(row(labelled("model", model)), place);
  choose(true);
}

/** Input fields and the model's prediction; a link that fills them runs it at once. */
function showTask(place, model, linked) {
  const masked = model.can.includes("fill");
  const names = FIELDS[model.task] ?? [["text", masked ? "Text with [MASK] tokens" : model.task === "tag" ? "Sentence, words separated by spaces" : "Text"]];
  const fields = names.map(([key, name]) => kept(key, area(name)));
  const answer = make("div", { "aria-live": "polite" });
  const go = () => busy(answer, async () => {
    if (!fields[0].value.trim()) return answer.replaceChildren(make("p", {}, "Type a text."));
    if (masked && !/\[MASK\]|<mask>/.test(fields[0].value)) return answer.replaceChildren(make("p", {}, "Put [MASK] in place of a word."));
    const all = masked ? await json("/api/fill", { model: model.id, text: fields[0].value }) : await json("/api/predict", { model: model.id, texts: [joined(model, fields)] });
    const told = masked ? all : all.predictions[0], said = fields.slice(0, model.task === "answer" ? 1 : 2); // the passage is part of the answer
    const shown = (masked ? filled : model.task === "tag" ? tagged : model.task === "answer" ? marked : whole)(told, fields);
    answer.replaceChildren(shown, ...notes(all), savers(model.task, () => told, () => pictureOf(shown, `${model.id}: ${said.map((field) => field.value).join("\n")}`)));
  });
  place.replaceChildren(...fields.map((field, at) => labelled(names[at][1], field)), row(button("Predict", go, { className: "main" })), answer);
  if (linked && fields.every((field, at) => field.value.trim() || (at && model.task === "regress"))) go();
}
/** The fields joined by tabs, as in data files. */
function joined(model, fields) {
  const [first, second] = fields.map((field) => field.value.replaceAll("\t", " "));
  if (model.task === "choose") return [first, ...second.split("\n").filter((line) => line.trim())].join("\t");
  return second?.trim() ? `${first}\t${second}` : first;
}

function whole(told, fields) {
  if ("probabilities" in told) {
    const shares = Array.isArray(told.probabilities) ? told.probabilities.map((p, at) => [fields[1].value.split("\n").filter((line) => line.trim())[at], p]) : Object.entries(told.probabilities);
    const sorted = shares.sort((a, b) => b[1] - a[1]).map(([name, value]) => ({ name, value }));
    return make("div", {}, make("p", { className: "result" }, String(told.label ?? told.text)), bars(sorted));
  }
  if ("value" in told) return make("p", { className: "result" }, told.value.toFixed(3));
  return make("p", {}, told.empty ? "The text is empty." : JSON.stringify(told));
}
/** Entities as coloured spans with the name of their type. */
function tagged(told) {
  const kind = (tag) => (tag === "O" ? "" : tag.replace(/^[BIES]-/, ""));
  const kinds = [...new Set(told.tags.map(kind).filter(Boolean))];
  const groups = [];
  told.words.forEach((word, at) => {
    const own = kind(told.tags[at]), last = groups.at(-1);
    if (own && last?.kind === own && /^[IE]-/.test(told.tags[at])) last.words.push(word);
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
function marked(told, fields) {
  const letters = Array.from(fields[1].value.replaceAll("\t", " ")), cut = (from, to) => letters.slice(from, to).join("");
  if (!told.answer) return make("div", {}, make("p", { className: "result" }, "no answer in the passage"), make("p", { className: "text" }, cut(0)));
  const text = make("p", { className: "text" }, cut(0, told.start), make("mark", {}, cut(told.start, told.stop)), cut(told.stop));
  return make("div", {}, make("p", { className: "result" }, told.answer), text);
}
function filled({ text, gaps }) {
  const lists = gaps.map((gap, at) => make("section", { className: "card" }, make("h2", {}, `mask ${at + 1}`), bars(gap.map((one) => ({ name: visible(one.token), value: one.probability })))));
  return make("div", {}, make("p", { className: "result" }, text), make("div", { className: "cards" }, ...lists));
}

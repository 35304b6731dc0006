// Words: neighbours, analogies, a map of word vectors, and one word in its contexts.
import { area, bars, busy, button, choice, json, kept, labelled, linked, make, nothing, number, options, remember, row, some, soft } from "./ui.js";
import { show } from "./charts.js";
import { pictureOf, savers } from "./downloads.js";

export const title = "Words";
export function open(main) {
  if (!some("words") && !some("senses")) return nothing(main, "has word vectors", "ensue fit word2vec my.txt --out runs/words");
  main.replaceChildren();
  if (some("words")) main.append(near(), map());
  if (some("senses")) main.append(senses());
}

function near() {
  const model = choice("model", "words"), word = kept("word", make("input", { size: 14, value: "king" }));
  const by = options("by", { cosine: "cosine", probability: "P(o | word)", context: "co-occurrence" });
  const neighbours = make("div", { "aria-live": "polite" });
  const go = (next) => {
    if (typeof next === "string") {
      word.value = next;
      word.dispatchEvent(new Event("input"));
    }
    remember({ model: model.value, word: word.value, by: by.value }); // also values that were not edited
    return busy(neighbours, async () => {
      const response = await json("/api/neighbours", { model: model.value, word: word.value.trim(), by: by.value });
      answered(neighbours, "neighbours", `${model.value}: ${word.value.trim()}, by ${by.selectedOptions[0].text}`, response, go, by.value !== "cosine");
    });
  };
  const [first, minus, plus] = ["king", "man", "woman"].map((one, i) => kept(`analogy${i}`, make("input", { size: 10, value: one, "aria-label": ["first word", "subtracted word", "added word"][i] })));
  const answers = make("div", { "aria-live": "polite" });
  const solve = () => busy(answers, async () => {
    remember({ model: model.value, analogy0: first.value, analogy1: minus.value, analogy2: plus.value });
    const form = { model: model.value, first: first.value.trim(), minus: minus.value.trim(), plus: plus.value.trim() };
    answered(answers, "analogy", `${form.model}: ${form.first} − ${form.minus} + ${form.plus}`, await json("/api/analogy", form), null);
  });
  enter(word, go);
  for (const field of [first, minus, plus]) enter(field, solve);
  if (linked("word")) go();
  if (linked("analogy0", "analogy1", "analogy2")) solve();
  return make("section", {},
    row(labelled("model", model)),
    make("div", { className: "cards wide" },
      make("section", { className: "card" }, make("h2", {}, "Neighbours"), row(labelled("word", word), labelled("by", by), button("Find", () => go(), { className: "main" })), neighbours),
      make("section", { className: "card" }, make("h2", {}, "Analogies"), row(first, "−", minus, "+", plus, button("Solve", solve)), answers)));
}
function answered(where, name, question, response, go, shares = false) {
  const most = Math.max(...response.words.map((one) => Math.abs(one.value)), shares ? 1e-9 : 1);
  const list = bars(response.words.map((one) => ({ name: one.word, value: one.value })), { most, go });
  where.replaceChildren(list, savers(name, () => response, () => pictureOf(list, question)));
}
function enter(field, go) {
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
}

function map() {
  const model = choice("mapped", "words"), words = kept("words", make("input", { size: 30, placeholder: "king queen man woman (empty: most frequent)" }));
  const pairs = kept("pairs", make("input", { size: 24, placeholder: "king:queen man:woman" })), method = options("method", { pca: "principal components", tsne: "t-SNE" });
  const where = make("div");
  const go = () => busy(where, () => show("words", { models: [model.value], words: words.value, pairs: pairs.value, method: method.value }, where));
  for (const field of [words, pairs]) enter(field, go);
  const section = make("section", {}, make("h2", {}, "Map of word vectors"), row(labelled("model", model), labelled("words", words), labelled("arrows", pairs), labelled("method", method), button("Draw", go)), where);
  go();
  return section;
}

function senses() {
  const model = choice("sensed", "senses"), word = kept("sense", make("input", { size: 12, value: "bank" })), layer = kept("layer", number(0, 0, 100, 1));
  const text = kept("contexts", area("Sentences", "at least three sentences with the word, one per line (empty: built-in sentences for bank and play)"));
  const where = make("div");
  const go = () => busy(where, () => {
    remember({ sensed: model.value, sense: word.value });
    return show("senses", { models: [model.value], word: word.value.trim(), layer: +layer.value, text: text.value }, where);
  });
  enter(word, go);
  if (linked("sense", "contexts")) go();
  return make("section", {}, make("h2", {}, "One word in its contexts"),
    soft("Each dot is a sentence, placed by the model's vector for the word in it."),
    row(labelled("model", model), labelled("word", word), labelled("layer (0: last)", layer), button("Draw", go)), text, where);
}

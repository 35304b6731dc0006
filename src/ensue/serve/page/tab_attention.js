// Attention: all heads as maps, and every word's looks when it is pointed at.
import { area, choice, find, kept, labelled, latest, make, nothing, number, options, row, soft, some, ticked } from "./kit.js";
import { show } from "./charts.js";

export const title = "Attention";
export function open(main) {
  if (!some("attention")) return nothing(main, "attends", "ensue fit gpt my.txt --out runs/gpt");
  const model = choice("model", "attention"), text = kept("text", area("Text", "The law will never be perfect, but its application should be just."));
  const layer = kept("layer", number(0, 0, 1000, 1)), head = kept("head", number(0, 0, 1000, 1));
  const word = kept("word", make("input", { size: 10 })), rolled = kept("rolled", make("input", { type: "checkbox" }));
  const part = options("part", { "": "target to source", source: "source to itself" });
  const words = make("div", { className: "looks" }), seen = make("div", { "aria-live": "polite" });
  const again = latest(350, seen, async (signal) => {
    const translates = find(model.value).task === "translation";
    part.parentElement.hidden = !translates;
    if (!text.value.trim()) {
      words.replaceChildren();
      return seen.replaceChildren(make("p", {}, "Type a sentence."));
    }
    const form = { models: [model.value], text: text.value, layer: +layer.value, head: +head.value, word: word.value, rolled: rolled.checked, part: translates ? part.value : "" };
    const numbers = await show("attention", form, seen, signal);
    if (numbers) words.replaceChildren(...hovered(numbers, +head.value));
  });
  for (const field of [model, text, layer, head, word, rolled, part]) field.addEventListener("input", again);
  main.replaceChildren(
    row(labelled("model", model), labelled("layer (0: all)", layer), labelled("head (0: all)", head), labelled("one word", word), labelled("of a translation", part), ticked("rolled out", rolled)),
    text, words, seen);
  again();
}

/** Words to point at: those that they look at are shaded, by the mean over the heads and layers that are shown. */
function hovered(numbers, head) {
  const maps = numbers.layers ? Object.values(numbers.layers).flat() : numbers.weights ? [numbers.weights] : numbers.rollout ? [numbers.rollout] : [];
  const shown = head && numbers.layers ? maps.filter((_, place) => place % Object.values(numbers.layers)[0].length === head - 1) : maps;
  if (!shown.length) return [];
  const chip = (token) => make("button", { type: "button", className: "chip" }, token);
  const who = numbers.tokens.map(chip), apart = numbers.kind === "cross", what = apart ? numbers.looked_at.map(chip) : who;
  const point = (place) => {
    const weights = what.map((_, to) => shown.reduce((sum, map) => sum + map[place][to], 0) / shown.length);
    const top = Math.max(...weights);
    what.forEach((other, to) => {
      other.style.setProperty("--look", (weights[to] / top).toFixed(3));
      other.title = weights[to].toFixed(3);
    });
    who.forEach((other, at) => other.classList.toggle("here", at === place));
  };
  who.forEach((one, place) => {
    for (const kind of ["pointerenter", "focus", "click"]) one.addEventListener(kind, () => point(place));
  });
  const said = apart ? "Point at a word of the translation: where it looks in the source is shaded." : "Point at a word: what it looks at is shaded.";
  const lines = apart ? [make("div", {}, ...who), make("div", {}, ...what)] : [make("div", {}, ...who)];
  return [soft(said), ...lines];
}

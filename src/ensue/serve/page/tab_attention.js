// Attention: all heads as heat maps, and the selected heads of one layer as lines between words.
import { area, button, choice, find, json, kept, labelled, latest, make, nothing, options, remember, row, settings, shade, some, soft, ticked } from "./ui.js";
import { show } from "./charts.js";
import { lines } from "./attention_lines.js";
import { pictureOfSvg, savers } from "./downloads.js";

export const title = "Attention";
export function open(main) {
  if (!some("attention")) return nothing(main, "has attention", "ensue fit gpt my.txt --out runs/gpt");
  const model = choice("model", "attention"), text = kept("text", area("Text", "The law will never be perfect, but its application should be just."));
  const layer = make("select", { "aria-label": "layer" }), part = options("part", { "": "target to source", source: "source to itself" });
  const rolled = kept("rolled", make("input", { type: "checkbox" }));
  const details = make("section"), maps = make("section", { "aria-live": "polite" });
  let numbers = null; // the last response: all layers, or as many as fit
  let missingLayer = 0; // a layer that the response did not contain
  const again = latest(350, maps, async (signal) => {
    const translates = find(model.value).can.includes("translate");
    part.parentElement.hidden = !translates;
    rolled.parentElement.hidden = translates && part.value === "";
    if (!text.value.trim()) {
      details.replaceChildren();
      return maps.replaceChildren(make("p", {}, "Type a sentence."));
    }
    const form = { models: [model.value], text: text.value, rolled: rolled.checked && !rolled.parentElement.hidden, part: translates ? part.value : "", layer: missingLayer };
    const result = await show("attention", form, maps, { signal, chosen: ({ layer: number, head }) => choose(number, [head - 1]) }).catch((error) => oneHeadInstead(error, form, signal));
    if (!result) return;
    numbers = result;
    const before = settings().get("layer") ?? String(numbers.of.layers);
    layer.replaceChildren(...Array.from({ length: numbers.of.layers }, (_, at) => make("option", { value: String(at + 1) }, `${at + 1} of ${numbers.of.layers}`)));
    layer.value = before;
    if (layer.selectedIndex < 0) layer.selectedIndex = numbers.of.layers - 1;
    layer.parentElement.hidden = Boolean(numbers.rollout) || numbers.of.layers === 1;
    showDetails();
  });
  /** If the text is too long for the maps of one layer, show one head as lines. */
  const oneHeadInstead = async (error, form, signal) => {
    if (!error.status || form.rolled) throw error;
    const one = { layer: missingLayer || +(settings().get("layer") ?? 0), head: parseInt(settings().get("heads"), 10) || 1 };
    const result = await json("/api/look/attention", { ...form, ...one }, signal).catch((again) => { throw again.name === "AbortError" ? again : error; });
    maps.replaceChildren(soft(`${result.numbers.tokens.length} × ${result.numbers.looked_at.length} tokens × ${result.numbers.of.heads} heads are too many for heat maps; try a shorter text.`));
    return result.numbers;
  };
  const choose = (number, heads) => {
    if (number === undefined || numbers?.rollout) return;
    layer.value = String(number);
    remember({ layer: layer.value, heads: heads.map((head) => head + 1).join(",") });
    showDetails();
    details.scrollIntoView({ block: "nearest" });
  };
  const showDetails = () => {
    const known = numbers.rollout ? [numbers.rollout] : numbers.weights ? numbers.layer === +layer.value && [numbers.weights] : numbers.layers[layer.value];
    if (!known) {
      missingLayer = +layer.value;
      return again();
    }
    const on = numbers.weights ? new Set([0]) : chosenHeads(known.length);
    const heads = known.map((map, head) => ({ head: numbers.weights ? numbers.head - 1 : head, map })).filter((_, head) => on.has(head));
    const at = settings().get("at") ?? "";
    const { svg, caption } = lines({ wide: Math.min(640, details.clientWidth || 640), queries: numbers.tokens, keys: numbers.looked_at, heads, at, pinned: (at) => remember({ at }) });
    const name = numbers.rollout ? "Attention rollout over all layers" : `Layer ${layer.value}`;
    const switches = numbers.weights ? [row(labelled("head", oneHead(numbers, again)))] : known.length > 1 ? [toggles(known.length, on, (next) => { remember({ heads: next.size === known.length ? "" : [...next].sort((a, b) => a - b).map((head) => head + 1).join(",") }); showDetails(); })] : [];
    const which = numbers.rollout ? "" : on.size < numbers.of.heads ? `, head ${heads.map(({ head }) => head + 1).join(", ")}` : ", all heads";
    const focused = details.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    details.replaceChildren(make("h2", {}, name), ...switches, svg, caption, savers("attention", () => numbers, () => pictureOfSvg(svg, `${model.value}: ${name}${which}`)), make("h2", {}, numbers.rollout ? "As a heat map" : "All heads"), ...(numbers.rollout ? [] : [soft(numbers.weights ? "Choose a head above." : "Click a map to show its head above.")]));
    if (focused) [...details.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
  };
  const fresh = () => { missingLayer = 0; again(); };
  for (const field of [model, text, rolled, part]) field.addEventListener("input", fresh);
  text.addEventListener("input", () => remember({ at: "" }));
  model.addEventListener("input", () => remember({ at: "", heads: "", layer: "" }));
  layer.addEventListener("input", () => { remember({ layer: layer.value }); showDetails(); });
  main.replaceChildren(
    row(labelled("model", model), labelled("layer", layer), labelled("attention", part), ticked("rollout over all layers", rolled)),
    text, details, maps);
  again();
}
/** The heads in the address, or all. */
function chosenHeads(count) {
  const named = (settings().get("heads") ?? "").split(",").map((one) => parseInt(one, 10) - 1).filter((head) => head >= 0 && head < count);
  return new Set(named.length ? named : Array.from({ length: count }, (_, head) => head));
}
/** A field to select one head of a layer. */
function oneHead(numbers, changed) {
  const field = make("select", { "aria-label": "head" }, ...Array.from({ length: numbers.of.heads }, (_, at) => make("option", { value: String(at + 1) }, `${at + 1} of ${numbers.of.heads}`)));
  field.value = String(numbers.head);
  field.addEventListener("input", () => { remember({ heads: field.value }); changed(); });
  return field;
}
/** A toggle for each head: the first click selects one head alone, further clicks add or remove heads; none means all. */
function toggles(count, on, changed) {
  const flip = (head) => {
    const next = on.size === count ? new Set([head]) : new Set(on);
    if (on.size !== count) next.has(head) ? next.delete(head) : next.add(head);
    changed(next.size ? next : new Set(Array.from({ length: count }, (_, one) => one)));
  };
  return make("div", { className: "heads", role: "group", "aria-label": "Heads" }, ...Array.from({ length: count }, (_, head) => {
    const one = button(String(head + 1), () => flip(head), { "aria-pressed": String(on.has(head)), "aria-label": `head ${head + 1}` });
    one.style.setProperty("--shade", shade(head));
    return one;
  }));
}

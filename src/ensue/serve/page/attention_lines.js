// Attention of one layer as lines between words, one colour per head. A hovered word shows only its own lines:
// on the left what it attends to, on the right what attends to it.
import { draw, make, shade } from "./ui.js";

const ROW = 24, MIN_WEIGHT = 0.04, MAX_LINES = 4000; // pixels per word; smaller weights are not drawn; lines in total

/** `heads` have an index from 0 and a map with a row for each query. `at` is the selected word: its index, with an r
    before it on the right side, or empty; `pinned` is called with it when it changes. */
export function lines({ queries, keys, heads, at = "", wide = 640, pinned }) {
  const left = wide * 0.4 - 4, right = wide * 0.6 + 4, letters = Math.floor((wide * 0.4 - 8) / 8);
  const tall = Math.max(queries.length, keys.length) * ROW + 8, middle = (index) => index * ROW + ROW / 2 + 4;
  const svg = draw("svg", { class: "lines", viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, tabindex: "0", role: "application", "aria-label": "Attention between words: select a word with the up and down keys, or hover over it" });
  const caption = make("p", { className: "soft", "aria-live": "polite" });
  const group = draw("g"), sides = [column(queries, left - 6, "end"), column(keys, right + 6, "start")];
  const named = /^(r?)(\d+)$/.exec(at), side = named?.[1] ? 1 : 0;
  let selected = named && named[2] < (side ? keys : queries).length ? { side, at: +named[2] } : null;
  const curve = (head, from, to, weight) => draw("path", { d: `M${left} ${middle(from)}C${wide / 2} ${middle(from)} ${wide / 2} ${middle(to)} ${right} ${middle(to)}`, stroke: shade(head), "stroke-opacity": weight.toFixed(3), "stroke-width": (0.6 + 4 * weight).toFixed(2) });
  const all = heads.flatMap(({ head, map }) => map.flatMap((row, from) => row.map((weight, to) => ({ head, from, to, weight })))).filter((one) => one.weight >= MIN_WEIGHT);
  const paint = (point) => {
    const own = point ? all.filter((one) => (point.side ? one.to : one.from) === point.at) : all;
    const shown = own.length > MAX_LINES ? own.sort((a, b) => b.weight - a.weight).slice(0, MAX_LINES) : own;
    group.replaceChildren(...shown.map(({ head, from, to, weight }) => curve(head, from, to, point ? weight : 0.6 * weight)));
    const largestWeights = (side) => {
      const largest = new Map();
      for (const one of own) { const index = side ? one.to : one.from; largest.set(index, Math.max(largest.get(index) ?? 0, one.weight)); }
      return largest;
    };
    sides.forEach((words, side) => {
      const largest = point && point.side !== side ? largestWeights(side) : null;
      words.forEach((word, index) => {
        word.classList.toggle("here", point?.side === side && point.at === index);
        word.style.opacity = largest ? (0.3 + 0.7 * (largest.get(index) ?? 0)).toFixed(2) : point && point.at !== index ? "0.5" : "1";
      });
    });
    caption.textContent = point ? describe(point, own) : "Hover over a word, or select one with the arrow keys, to show only its lines. Click to keep it selected.";
  };
  const describe = ({ side, at: index }, own) => {
    const best = [...own].sort((a, b) => b.weight - a.weight).slice(0, 4);
    const name = (side ? keys : queries)[index], verb = side ? "is attended to by" : "attends to";
    return `${name} ${verb} ${best.map((one) => `${(side ? queries : keys)[side ? one.from : one.to]} (head ${one.head + 1}: ${one.weight.toFixed(2)})`).join(", ") || "nothing much"}`;
  };
  const select = (point) => {
    selected = point;
    pinned?.(point ? `${point.side ? "r" : ""}${point.at}` : "");
    paint(selected);
  };
  sides.forEach((words, side) => words.forEach((word, index) => {
    word.addEventListener("pointerenter", () => paint({ side, at: index }));
    word.addEventListener("click", () => select(selected?.side === side && selected.at === index ? null : { side, at: index }));
  }));
  svg.addEventListener("pointerleave", () => paint(selected));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") select(null);
    if (!by) return;
    event.preventDefault();
    select({ side: 0, at: Math.max(0, Math.min(queries.length - 1, (selected && !selected.side ? selected.at : by > 0 ? -1 : queries.length) + by)) });
  });
  svg.append(draw("title", {}, "Attention between words"), group, ...sides.flat());
  paint(selected);
  return { svg, caption };

  function column(names, x, anchor) {
    return names.map((name, index) => {
      const word = draw("text", { x, y: middle(index), "text-anchor": anchor, "dominant-baseline": "central", class: "word" });
      word.textContent = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
      return word;
    });
  }
}

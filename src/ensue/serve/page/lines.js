// The looks of one layer: words on both sides, a line for every look, a colour a head. A word that is pointed at shows
// its own lines alone: on the left what it looks at, on the right what looks at it.
import { draw, make, shade } from "./kit.js";

const HIGH = 24, FAINT = 0.04, MOST = 4000; // pixels of a word; weights below are not drawn; lines of all words together

/** `heads`: by their number from 0, each a row a word that looks. `at` is the word that is chosen, as `pinned` is
    told it: its place, with an r before it on the right; nothing where there is none. */
export function lines({ who, what, heads, at = "", wide = 640, pinned }) {
  const left = wide * 0.4 - 4, right = wide * 0.6 + 4, letters = Math.floor((wide * 0.4 - 8) / 8);
  const tall = Math.max(who.length, what.length) * HIGH + 8, middle = (place) => place * HIGH + HIGH / 2 + 4;
  const svg = draw("svg", { class: "lines", viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, tabindex: "0", role: "application", "aria-label": "Looks between words: choose a word with up and down, or point at it" });
  const said = make("p", { className: "soft", "aria-live": "polite" });
  const group = draw("g"), sides = [column(who, left - 6, "end"), column(what, right + 6, "start")];
  const named = /^(r?)(\d+)$/.exec(at), side = named?.[1] ? 1 : 0;
  let held = named && named[2] < (side ? what : who).length ? { side, at: +named[2] } : null;
  const strand = (head, from, to, weight) => draw("path", { d: `M${left} ${middle(from)}C${wide / 2} ${middle(from)} ${wide / 2} ${middle(to)} ${right} ${middle(to)}`, stroke: shade(head), "stroke-opacity": weight.toFixed(3), "stroke-width": (0.6 + 4 * weight).toFixed(2) });
  const all = heads.flatMap(({ head, map }) => map.flatMap((row, from) => row.map((weight, to) => ({ head, from, to, weight })))).filter((one) => one.weight >= FAINT);
  const paint = (point) => {
    const own = point ? all.filter((one) => (point.side ? one.to : one.from) === point.at) : all;
    const shown = own.length > MOST ? own.sort((a, b) => b.weight - a.weight).slice(0, MOST) : own;
    group.replaceChildren(...shown.map(({ head, from, to, weight }) => strand(head, from, to, point ? weight : 0.6 * weight)));
    const loudest = (side) => {
      const sums = new Map();
      for (const one of own) { const place = side ? one.to : one.from; sums.set(place, Math.max(sums.get(place) ?? 0, one.weight)); }
      return sums;
    };
    sides.forEach((words, side) => {
      const loud = point && point.side !== side ? loudest(side) : null;
      words.forEach((word, place) => {
        word.classList.toggle("here", point?.side === side && point.at === place);
        word.style.opacity = loud ? (0.3 + 0.7 * (loud.get(place) ?? 0)).toFixed(2) : point && point.at !== place ? "0.5" : "1";
      });
    });
    said.textContent = point ? told(point, own) : "Point at a word, or choose one with the arrow keys: its lines alone are shown. A click keeps it.";
  };
  const told = ({ side, at: place }, own) => {
    const best = [...own].sort((a, b) => b.weight - a.weight).slice(0, 4);
    const name = (side ? what : who)[place], verb = side ? "is looked at by" : "looks at";
    return `${name} ${verb} ${best.map((one) => `${(side ? who : what)[side ? one.from : one.to]} (head ${one.head + 1}: ${one.weight.toFixed(2)})`).join(", ") || "nothing much"}`;
  };
  const hold = (point) => {
    held = point;
    pinned?.(point ? `${point.side ? "r" : ""}${point.at}` : "");
    paint(held);
  };
  sides.forEach((words, side) => words.forEach((word, place) => {
    word.addEventListener("pointerenter", () => paint({ side, at: place }));
    word.addEventListener("click", () => hold(held?.side === side && held.at === place ? null : { side, at: place }));
  }));
  svg.addEventListener("pointerleave", () => paint(held));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hold(null);
    if (!by) return;
    event.preventDefault();
    hold({ side: 0, at: Math.max(0, Math.min(who.length - 1, (held && !held.side ? held.at : by > 0 ? -1 : who.length) + by)) });
  });
  svg.append(draw("title", {}, "Looks between words"), group, ...sides.flat());
  paint(held);
  return { svg, said };

  function column(names, x, anchor) {
    return names.map((name, place) => {
      const word = draw("text", { x, y: middle(place), "text-anchor": anchor, "dominant-baseline": "central", class: "word" });
      word.textContent = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
      return word;
    });
  }
}

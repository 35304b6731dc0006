// Tokens shaded by their probability, for the tabs Write and Chat.
import { make } from "./ui.js";

const STRONGEST = 0.8; // opacity of the shade: text on it keeps a contrast of 4.5 in light and dark mode

/** A token, shaded by its log P; Tab stops at the `first` token of a text, and arrow keys move to the others. */
export function shaded(text, logProb, details, first) {
  const span = make("span", { tabIndex: first ? 0 : -1, className: "piece" }, text);
  span.style.setProperty("--cost", Math.min(STRONGEST, -logProb / 8).toFixed(3));
  span.details = details;
  return span;
}
/** Arrow keys, Home and End move between the tokens of a text. */
export function moveWithArrows(text) {
  text.addEventListener("focusin", (event) => {
    for (const other of text.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    event.target.tabIndex = 0;
  });
  text.addEventListener("keydown", (event) => {
    const all = [...text.querySelectorAll(".piece")], at = all.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || !all[to]) return;
    event.preventDefault();
    all[to].focus();
  });
}

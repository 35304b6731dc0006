// Tokens of an answer: joined to whole characters, shaded, and explained where the pointer or the focus is.
import { bars, make, visible } from "./ui.js";
import { moveWithArrows, shaded } from "./token_shading.js";

const rounded = (value) => Math.round(value * 1e4) / 1e4;

/** Joins tokens that are parts of one character: a piece is [text, [[token, log P, [[alternative, log P], …]], …]]. */
export class PieceJoiner {
  #bytes = [];
  #tokens = [];

  /** Add a token of the API's `logprobs.content`; return the pieces that are complete now: one, or none. */
  add({ token, logprob, bytes, top_logprobs: best }) {
    this.#bytes.push(...(bytes ?? []));
    this.#tokens.push([token, rounded(logprob), best.map((one) => [one.token, rounded(one.logprob)])]);
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true }), text = decoder.decode(Uint8Array.from(this.#bytes), { stream: true });
    return decoder.decode() ? [] : [this.#piece(text)]; // what is left over are the first bytes of a character
  }
  /** The piece that was left incomplete, if any. */
  finish() {
    return this.#tokens.length ? [this.#piece(new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(this.#bytes)))] : [];
  }
  #piece(text) {
    const piece = [text, this.#tokens];
    this.#bytes = [];
    this.#tokens = [];
    return piece;
  }
}

/** Pieces as shaded elements, to be added to a text. */
export function shadedPieces(pieces, started) {
  const fragment = document.createDocumentFragment();
  for (const [text, tokens] of pieces) {
    if (!text) continue; // a special token
    if (!tokens.length) fragment.append(text);
    else fragment.append(shaded(text, tokens.reduce((sum, [, value]) => sum + value, 0), tokens, !started));
    started = true;
  }
  return fragment;
}

/** A box with the probability and the alternatives of one token; `watch` shows it for the tokens of a text. */
export function tokenBox() {
  const box = make("div", { className: "tip", id: "token-tip", role: "tooltip", hidden: true });
  let shown = null, leaving = 0;
  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.hidden = true;
  };
  const show = (span) => {
    clearTimeout(leaving);
    if (!span.details || span === shown) return;
    hide();
    shown = span;
    span.setAttribute("aria-describedby", box.id);
    box.replaceChildren(...span.details.map(explained));
    box.hidden = false;
    place(box, span);
  };
  const leave = () => { leaving = setTimeout(hide, 150); }; // long enough to move the pointer into the box
  box.addEventListener("pointerenter", () => clearTimeout(leaving));
  box.addEventListener("pointerleave", leave);
  const watch = (text) => {
    for (const kind of ["pointermove", "focusin", "click"]) text.addEventListener(kind, (event) => show(event.target)); // not pointerover: text that streams under a resting pointer shows nothing
    text.addEventListener("pointerout", (event) => event.pointerType === "mouse" && leave());
    text.addEventListener("focusout", hide);
    moveWithArrows(text);
  };
  return { box, watch, hide };
}
function explained([token, logProb, best]) {
  const others = best.map(([name, value]) => ({ name, value: Math.exp(value) }));
  if (!best.some(([name]) => name === token)) others.push({ name: token, value: Math.exp(logProb) });
  return make("div", {}, make("p", {}, make("b", {}, visible(token)), ` P = ${Math.exp(logProb).toFixed(3)}`), bars(others));
}
/** Below the first line of a token, or above it where there is more room; never beyond the sides. */
function place(box, span) {
  const line = span.getClientRects()[0] ?? span.getBoundingClientRect(), size = box.getBoundingClientRect();
  const below = line.bottom + size.height + 8 < innerHeight || line.top < size.height + 8;
  box.style.left = `${Math.max(8, Math.min(line.left, document.documentElement.clientWidth - size.width - 8)) + scrollX}px`;
  box.style.top = `${(below ? line.bottom + 4 : line.top - size.height - 4) + scrollY}px`;
}

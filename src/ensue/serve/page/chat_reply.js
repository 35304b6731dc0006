// An answer while it is generated.
import { PieceJoiner } from "./chat_tokens.js";

const MOST_DELAY = 200; // milliseconds between two drawings of a long answer

/** An answer that grows; it is drawn at most once a frame, however fast tokens come, and less often if it is long. */
export class Reply {
  #joiner = new PieceJoiner();
  #started = performance.now();
  #scheduled = false;
  constructor(node, draw) {
    Object.assign(this, { node, draw });
  }
  add({ choices: [choice], usage }) {
    const { node } = this, now = (performance.now() - this.#started) / 1000;
    node.timing = { tokens: usage.completion_tokens, first: node.timing?.first ?? now, last: now };
    node.usage = usage;
    for (const token of choice.logprobs.content) this.#take(this.#joiner.add(token));
    if (choice.finish_reason) node.finish ||= choice.finish_reason;
    if (this.#scheduled) return;
    this.#scheduled = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.#scheduled = false;
      this.draw();
    }), Math.min(MOST_DELAY, node.text.length / 40));
  }
  /** Take what is left, unless it is a part of a character that was stopped before its end: a next turn would send it as �. */
  finish() {
    if (this.node.finish !== "stopped") this.#take(this.#joiner.finish());
  }
  #take(pieces) {
    this.node.pieces.push(...pieces);
    for (const [text] of pieces) this.node.text += text;
  }
}

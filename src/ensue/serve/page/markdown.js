// A small part of Markdown as elements: code blocks, headings, lists, bold, italics, code. All else stays text.
import { make } from "./ui.js";

const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/, HEADING = /^#{1,6}\s+(.*)$/, FENCE = /^\s*```[^`]*$/;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^\s*][^*\n]*)\*/g; // no part can match twice, so the time is linear
const TAGS = ["code", "strong", "em"];

/** Text as nodes; nothing in it is taken for HTML. */
export function markdown(text) {
  const lines = text.split("\n"), blocks = document.createDocumentFragment();
  for (let at = 0; at < lines.length; ) {
    const start = at, item = ITEM.exec(lines[at]), heading = HEADING.exec(lines[at]);
    if (FENCE.test(lines[at])) {
      do at++; while (at < lines.length && !FENCE.test(lines[at]));
      blocks.append(make("pre", {}, make("code", {}, lines.slice(start + 1, at++).join("\n"))));
    } else if (heading) {
      at++;
      blocks.append(make("p", {}, make("strong", {}, ...inline(heading[1]))));
    } else if (item) {
      const items = [];
      for (let next = item; next && !next[1] === !item[1]; next = ITEM.exec(lines[++at] ?? "")) items.push(make("li", {}, ...inline(next[2])));
      blocks.append(item[1] ? make("ol", { start: +item[1] }, ...items) : make("ul", {}, ...items));
    } else {
      while (at < lines.length && lines[at].trim() && !(at > start && [ITEM, HEADING, FENCE].some((kind) => kind.test(lines[at])))) at++;
      if (at > start) blocks.append(make("p", {}, ...inline(lines.slice(start, at).join("\n"))));
      else at++; // a blank line
    }
  }
  return blocks;
}
function inline(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const kind = [1, 2, 3].find((group) => match[group] !== undefined);
    parts.push(text.slice(end, match.index), make(TAGS[kind - 1], {}, match[kind]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

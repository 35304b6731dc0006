// One message of a conversation: its text, its facts, and what can be done with it.
import { button, copy, make, row } from "./ui.js";
import { markdown } from "./markdown.js";
import { shadedPieces } from "./chat_tokens.js";

const REASONS = { length: "reached max tokens", stopped: "stopped", interrupted: "interrupted" };

/** Show an answer as shaded tokens, adding those that are new, or formatted; a stored answer may have no tokens. */
export function fill(text, node, view) {
  const tokens = node.pieces ?? [[node.text, []]];
  if (view === "tokens") {
    text.append(shadedPieces(tokens.slice(text.shown ?? 0), text.hasChildNodes()));
    text.shown = tokens.length;
  } else text.replaceChildren(markdown(node.text));
  text.className = view === "tokens" ? "text" : "text formatted";
}
/** How many tokens an answer has and how fast they came, in words. */
export function facts({ timing, finish, settings, text, error }) {
  const { tokens = 0, first = 0, last = 0 } = timing ?? {};
  const parts = tokens ? [`${tokens} token${tokens === 1 ? "" : "s"}`, `first token after ${first.toFixed(2)} s`] : [];
  if (tokens > 1 && last > first) parts.push(`${((tokens - 1) / (last - first)).toFixed(0)} tokens/s`);
  if (tokens && settings?.temperature > 0) parts.push(`seed ${settings.seed}`);
  if (REASONS[finish]) parts.push(REASONS[finish]);
  if (finish && !text && !error) parts.push("empty answer");
  return parts.join(" · ");
}

/** The element of a message; `can` holds what its buttons do. */
export function messageOf(conversation, index, view, can) {
  const node = conversation.nodes[index], own = node.role === "user", text = make("div", { className: "text" }, own ? node.text : "");
  if (!own) fill(text, node, view);
  return make("li", { className: `message ${node.role}` }, make("h2", {}, own ? "You" : node.model), text, ...belowText(conversation, index, can));
}
/** Make everything again but the text, in which somebody may be reading. */
export function refresh(item, conversation, index, can) {
  const text = item.querySelector(".text");
  while (text.nextSibling) text.nextSibling.remove();
  item.append(...belowText(conversation, index, can));
}
/** Facts, error and buttons of a message. */
function belowText(conversation, index, can) {
  const node = conversation.nodes[index], own = node.role === "user", parts = [];
  const act = (name, label, work, more = {}) => Object.assign(button(name, work, { title: label, "data-act": label }), more);
  if (!own) parts.push(make("p", { className: "soft facts" }, facts(node)));
  if (node.error) parts.push(make("p", { className: "error", role: "alert" }, [`${node.error}.`, node.hint].filter(Boolean).join(" ")));
  const buttons = own ? [act("Edit", "Edit this message", () => can.edit(index))]
    : [act(node.error ? "Try again" : "Retry", "Answer again", () => can.retry(index), { className: node.error ? "again" : "" })];
  buttons.push(act("Copy", "Copy this text", async (event) => { event.target.textContent = (await copy(node.text)) ? "Copied" : "Cannot copy"; }));
  return [...parts, make("div", { className: "row acts" }, ...switcher(conversation, index, act, can), ...buttons)];
}
/** ‹ 2/3 › for a message with several versions. */
function switcher(conversation, index, act, can) {
  const versions = conversation.versions(index), at = versions.indexOf(index);
  if (versions.length < 2) return [];
  const to = (step) => () => can.choose(versions[at + step], step);
  return [
    act("‹", "Earlier version", to(-1), { ariaLabel: "Earlier version", disabled: at === 0, last: at === 0 }),
    make("span", { className: "number" }, `${at + 1}/${versions.length}`),
    act("›", "Later version", to(1), { ariaLabel: "Later version", disabled: at === versions.length - 1, last: at === versions.length - 1 }),
  ];
}
/** A field in place of a message, to change it; `can` holds what happens when one types, sends or cancels. */
export function editor(item, text, can) {
  const field = make("textarea", { value: text, "aria-label": "Edit this message" }), save = () => field.value.trim() && can.send(field.value);
  sendOnEnter(field, save);
  field.addEventListener("input", () => can.typed(field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    can.cancel();
  });
  item.replaceChildren(make("h2", {}, "You"), field, row(button("Send", save, { className: "main" }), button("Cancel", can.cancel)));
  field.focus();
}
/** Enter sends and Shift+Enter begins a line; with a touch screen's keyboard, which has no Shift+Enter, only the button sends. */
export function sendOnEnter(field, send) {
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    const forced = event.ctrlKey || event.metaKey;
    if (event.shiftKey || (!forced && touchOnly())) return;
    event.preventDefault();
    event.stopPropagation(); // Ctrl+Enter also presses the blue button, which by then may be another
    send();
  });
}
export const touchOnly = () => matchMedia("(hover: none) and (pointer: coarse)").matches;

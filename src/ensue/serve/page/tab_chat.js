// Chat: a conversation with a model, streamed, with all its versions.
import { area, button, choice, events, find, kept, labelled, make, nothing, number, options, request, row, soft, some, valid } from "./ui.js";
import { saveJson } from "./downloads.js";
import { Conversation, forget, restoredDraft, storeDraft } from "./chat_conversation.js";
import { PieceJoiner, tokenBox } from "./chat_tokens.js";
import { editor, facts, fill, messageOf, sendOnEnter, touchOnly } from "./chat_message.js";

const ALTERNATIVES = 5; // most probable tokens that are shown beside each token
const MOST_DELAY = 200; // milliseconds between two drawings of a long answer
const HINTS = { 400: "Edit a message to make it shorter, or start a new chat.", 401: "Reload the page to enter the key; nothing is lost.", 413: "Edit the message to make it shorter.", 422: "Change the message or the settings." };

let conversation = null, running = null; // they outlive the tab's elements: another tab may be opened in between

export const title = "Chat";
export function open(main) {
  if (!some("chat")) return nothing(main, "can chat, which needs a chat template", "ensue get smollm2", "To get one");
  running?.stop();
  conversation ??= Conversation.restored();
  const before = restoredDraft(), list = make("ol", { className: "messages", "aria-label": "Conversation" });
  const spoken = make("p", { className: "unseen", role: "status" }), status = make("span", { className: "soft", role: "status" });
  const model = choice("model", "chat"), view = options("view", { tokens: "tokens, shaded by probability", text: "formatted text" });
  const welcome = soft("The conversation stays in this browser tab until you close the tab or press New chat. The server saves nothing of it.");
  const form = settingsForm(before.system), box = tokenBox();
  const field = make("textarea", { value: before.draft, rows: 2, "aria-label": "Message", placeholder: touchOnly() ? "Message" : "Message (Enter sends, Shift+Enter begins a line)" });
  const send = button("Send", () => (running ? running.stop() : say()), { className: "main" });
  const used = make("span", { className: "number used" }), end = make("div", { className: "end" }), composer = make("div", { className: "composer" }, field, row(send, used, status));

  const draft = () => storeDraft(field.value, form.system.value);
  for (const one of [field, form.system]) one.addEventListener("input", draft);
  const store = () => { status.textContent = conversation.store() ? "" : "This conversation is too long to survive a reload: export it."; };
  const item = (index) => list.children[conversation.path.indexOf(index)];
  const working = (on) => {
    send.textContent = on ? "Stop" : "Send";
    send.classList.toggle("main", !on); // Ctrl+Enter presses the blue button
    for (const one of list.querySelectorAll(".acts button:not(:disabled), .acts button.waiting")) {
      one.classList.toggle("waiting", on && !one.dataset.act.startsWith("Copy"));
      one.disabled = one.classList.contains("waiting");
    }
  };
  const count = () => {
    const { usage } = conversation.nodes[conversation.path.findLast((at) => conversation.nodes[at].usage) ?? -1] ?? {}, limit = find(model.value)?.context;
    const total = usage?.total_tokens ?? 0, over = limit && total > limit;
    used.textContent = `${total.toLocaleString("en")}${limit ? ` of ${limit.toLocaleString("en")}` : ""} tokens of context${over ? ": the model no longer sees the oldest part" : ""}`;
    used.classList.toggle("error", Boolean(over));
  };
  const message = (index) => {
    const made = messageOf(conversation, index, view.value, { edit, retry, choose });
    if (conversation.nodes[index].role === "assistant") box.watch(made.querySelector(".text"));
    return made;
  };
  const draw = () => {
    box.hide();
    list.replaceChildren(...conversation.path.map(message));
    welcome.hidden = list.hasChildNodes();
    if (running) working(true);
    count();
  };
  const toEnd = () => end.scrollIntoView({ block: "nearest" });
  const following = () => end.getBoundingClientRect().top < composer.getBoundingClientRect().top + 60; // not scrolled up to read

  const say = async () => {
    if (running || !field.value.trim() || !form.check(status)) return;
    const user = conversation.add(conversation.path.at(-1) ?? -1, { role: "user", text: field.value });
    field.value = "";
    draft();
    await answer(user);
  };
  const edit = (index) => {
    if (running) return;
    const node = conversation.nodes[index], back = () => { draw(); focusOn(index, "Edit this message"); };
    editor(item(index), node, (text) => form.check(status) && answer(conversation.add(node.parent, { role: "user", text })), back);
  };
  const retry = (index) => {
    if (running || !form.check(status)) return;
    const node = conversation.nodes[index];
    answer(node.parent, node.error && !node.text ? index : undefined); // an answer with text stays beside the new one
  };
  const choose = (index, step) => {
    conversation.choose(index);
    draw();
    store();
    focusOn(index, step < 0 ? "Earlier version" : "Later version");
  };
  const focusOn = (index, act) => {
    const buttons = [...item(index).querySelectorAll("[data-act]")];
    (buttons.find((one) => one.dataset.act === act && !one.disabled) ?? buttons.find((one) => !one.disabled))?.focus();
  };

  /** Answer a message: with a new version, or once more in the place of one that failed. */
  const answer = async (user, again) => {
    const tries = conversation.nodes.filter((node) => node.parent === user).length - (again === undefined ? 0 : 1);
    const settings = form.values(tries), fresh = { role: "assistant", text: "", model: model.value, settings, pieces: [], finish: "", error: "", timing: null };
    const index = again ?? conversation.add(user, fresh), node = Object.assign(conversation.nodes[index], fresh);
    const controller = new AbortController();
    const own = (running = { stop: () => { node.finish ||= "stopped"; controller.abort(); running = null; store(); }, store });
    draw();
    toEnd();
    if (document.activeElement === document.body) send.focus(); // the button that was pressed is gone
    store();
    const reply = new Reply(node, () => {
      const follow = following(), shown = item(index);
      if (!shown) return;
      fill(shown.querySelector(".text"), node, view.value);
      shown.querySelector(".facts").textContent = facts(node);
      count();
      if (follow) toEnd();
    });
    try {
      const body = { model: node.model, messages: conversation.messages(user, form.system.value), ...settings, stream: true, logprobs: true, top_logprobs: ALTERNATIVES, stream_options: { continuous_usage_stats: true } };
      for await (const piece of events(await request("/v1/chat/completions", body, controller.signal))) {
        if (!list.isConnected) return controller.abort(); // another tab is open
        reply.add(piece);
      }
      node.finish ||= "stop";
    } catch (error) {
      if (error.name !== "AbortError") Object.assign(node, { error: error.message, hint: HINTS[error.status] ?? "" });
    } finally {
      reply.finish();
      if (running === own) running = null;
      store();
      if (list.isConnected && !running) finished(index, node);
    }
  };
  const finished = (index, node) => {
    const old = item(index), follow = following(), at = [...old.querySelectorAll(".piece")].indexOf(document.activeElement);
    const made = message(index);
    old.replaceWith(made);
    if (at >= 0) made.querySelectorAll(".piece")[at]?.focus();
    working(false);
    count();
    if (follow) toEnd();
    spoken.textContent = node.error ? "" : node.finish === "stopped" ? "stopped" : `${node.model}: ${node.text || "empty answer"}`;
  };

  const renew = button("New chat", () => {
    if (conversation.nodes.length && !confirm("Delete this conversation?")) return;
    running?.stop();
    conversation = new Conversation();
    field.value = "";
    forget();
    draft();
    draw();
    field.focus();
  });
  sendOnEnter(field, say);
  view.addEventListener("input", draw);
  model.addEventListener("input", count);
  const panel = make("div", { className: "chat", onkeydown: (event) => {
    if (event.key !== "Escape") return;
    box.hide();
    if (running) running.stop();
  } },
    row(labelled("model", model), labelled("show answers as", view), renew, button("Export JSON", () => saveJson("chat", conversation.exported(form.system.value)))),
    form.element, welcome, list, end, spoken, composer);
  main.replaceChildren(panel, box.box);
  draw();
  if (conversation.nodes.length) toEnd();
}

/** An answer that grows; it is drawn at most once a frame, however fast tokens come, and less often if it is long. */
class Reply {
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
  finish() {
    this.#take(this.#joiner.finish());
  }
  #take(pieces) {
    this.node.pieces.push(...pieces);
    for (const [text] of pieces) this.node.text += text;
  }
}

/** System prompt and sampling settings, folded. */
function settingsForm(prompt) {
  const system = Object.assign(area("System prompt", "empty: the model's own"), { value: prompt });
  const temperature = kept("temperature", number(0.2, 0, 2, 0.1)), p = kept("p", number(0.9, 0.01, 1, 0.01)), k = kept("k", number(0, 0, 100000, 1));
  const tokens = kept("tokens", number(512, 1, 4096, 1)), seed = kept("seed", number("", 0, 2 ** 31, 1));
  seed.required = false;
  seed.placeholder = "random";
  const fields = [temperature, p, k, tokens, seed];
  const element = make("details", {}, make("summary", {}, "Settings"),
    labelled("system prompt", system),
    row(labelled("temperature", temperature), labelled("top-p", p), labelled("top-k (0: all)", k), labelled("max tokens", tokens), labelled("seed", seed)),
    soft("With a seed, the n-th answer to a message uses seed + n − 1. Shades and alternatives are the model's own probabilities, before temperature, top-p and top-k. A stronger colour means a less likely token: point at it, tap it, or move with the arrow keys."),
    soft("When a conversation is longer than the model's context, the model reads on from the newer half of it, and no longer sees older messages nor the system prompt. Past 8,192 tokens the server refuses a message. Models here answer with text only: they call no tools."));
  const draw = () => crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
  const values = (tries) => ({ temperature: +temperature.value, top_p: +p.value, top_k: +k.value, max_tokens: +tokens.value, seed: seed.value === "" ? draw() : +seed.value + tries });
  const check = (status) => {
    try {
      valid(...fields);
      status.textContent = "";
      return true;
    } catch (error) {
      element.open = true;
      status.textContent = error.message;
      return false;
    }
  };
  return { element, system, values, check };
}

addEventListener("pagehide", () => running?.store()); // a reload keeps what was said so far

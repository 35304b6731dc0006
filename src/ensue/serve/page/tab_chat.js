// Chat: a conversation with a model, streamed, with all its versions.
import { button, choice, events, find, labelled, make, nothing, options, request, row, soft, some } from "./ui.js";
import { saveJson } from "./downloads.js";
import { Conversation, forget, restoredDraft, storeDraft } from "./chat_conversation.js";
import { editor, facts, fill, messageOf, refresh, sendOnEnter, touchOnly } from "./chat_message.js";
import { Reply } from "./chat_reply.js";
import { settingsForm } from "./chat_settings.js";
import { tokenBox } from "./chat_tokens.js";

const ALTERNATIVES = 5; // most probable tokens that are shown beside each token
const HINTS = { 400: "Edit a message to make it shorter, or start a new chat.", 401: "Reload the page to enter the key; nothing is lost.", 408: "Make the message shorter, or try again when the server has less to do.", 404: "Reload the page to see which models are served.", 413: "Edit the message to make it shorter.", 422: "Change the message or the settings." };
const PRIVACY = "The conversation stays in this browser tab until you close the tab or press New chat. The server writes nothing of it to disk.";
const PLACEHOLDER = "Message (Enter sends, Shift+Enter begins a line)";

let conversation = null, running = null, current = null; // they outlive the tab's elements: another tab may be opened in between

export const title = "Chat";
export function open(main) {
  if (!some("chat")) return nothing(main, "can chat, which needs a chat template", "ensue get smollm2", "To get one");
  running?.stop();
  conversation ??= Conversation.restored();
  current = new ChatView();
  main.replaceChildren(current.element, current.tip.box);
  current.start();
}
addEventListener("keydown", (event) => { if (event.key === "Escape") current?.escape(); });
addEventListener("pagehide", () => running && conversation.store()); // a reload keeps what was said so far

class ChatView {
  constructor() {
    const { draft, system, editing } = restoredDraft();
    Object.assign(this, { editing, form: settingsForm(system), tip: tokenBox() });
    this.model = choice("model", "chat");
    this.view = options("view", { tokens: "shaded tokens", text: "formatted text" });
    this.list = make("ol", { className: "messages", "aria-label": "Conversation" });
    this.end = make("div");
    this.welcome = soft(PRIVACY);
    this.spoken = make("p", { className: "unseen", role: "status" });
    this.status = make("span", { className: "soft", role: "status" });
    this.used = make("span", { className: "number used" });
    this.field = make("textarea", { value: draft, rows: 2, "aria-label": "Message", placeholder: touchOnly() ? "Message" : PLACEHOLDER });
    this.send = button("Send", () => (running ? running.stop() : this.say()), { className: "main" });
    this.composer = make("div", { className: "composer" }, this.field, row(this.send, this.used, this.status));
    const exported = button("Export JSON", () => saveJson("chat", conversation.exported(this.form.system.value)));
    this.element = make("div", {},
      row(labelled("model", this.model), labelled("answers as", this.view), button("New chat", () => this.renew()), exported),
      this.form.element, this.welcome, this.list, this.end, this.spoken, this.composer);
    sendOnEnter(this.field, () => this.say());
    for (const one of [this.field, this.form.system]) one.addEventListener("input", () => this.storeDraft());
    this.view.addEventListener("input", () => this.redrawAnswers());
    this.model.addEventListener("input", () => this.count());
  }
  start() {
    this.draw();
    if (conversation.nodes[this.editing?.index]?.role === "user" && this.item(this.editing.index)) this.edit(this.editing.index, this.editing.text);
    if (conversation.nodes.length) this.toEnd();
  }

  // What people do.
  say() {
    if (running || !this.field.value.trim() || !this.form.check(this.status)) return;
    const user = conversation.add(conversation.path.at(-1) ?? -1, { role: "user", text: this.field.value });
    this.field.value = "";
    this.storeDraft();
    this.answer(user);
  }
  edit(index, text = conversation.nodes[index].text) {
    const change = (editing) => {
      this.editing = editing;
      this.storeDraft();
    };
    editor(this.item(index), text, {
      typed: (now) => change({ index, text: now }),
      send: (changed) => {
        if (running || !this.form.check(this.status)) return;
        change(null);
        this.answer(conversation.add(conversation.nodes[index].parent, { role: "user", text: changed }));
      },
      cancel: () => {
        change(null);
        this.redraw(index);
        this.focusOn(index, "Edit this message");
      },
    });
  }
  retry(index) {
    if (running || !this.form.check(this.status)) return;
    const { parent, error, text } = conversation.nodes[index];
    this.answer(parent, error && !text ? index : undefined); // an answer with text stays beside the new one
  }
  choose(index, step) {
    conversation.choose(index);
    this.draw();
    this.store();
    this.focusOn(index, step < 0 ? "Earlier version" : "Later version");
  }
  renew() {
    if (conversation.nodes.length && !confirm("Delete this conversation?")) return;
    running?.stop();
    conversation = new Conversation();
    this.field.value = "";
    this.editing = null;
    forget();
    this.storeDraft();
    this.draw();
    this.field.focus();
  }
  escape() {
    this.tip.hide();
    running?.stop();
  }

  /** Answer a message: with a new version, or once more in the place of one that failed. */
  async answer(user, again) {
    const tries = conversation.nodes.filter((node) => node.parent === user).length - (again === undefined ? 0 : 1), settings = this.form.values(tries);
    const fresh = { role: "assistant", text: "", model: this.model.value, settings, pieces: [], finish: "", error: "", hint: "", timing: null };
    const index = again ?? conversation.add(user, fresh), node = Object.assign(conversation.nodes[index], fresh), controller = new AbortController();
    const own = (running = { stop: () => { node.finish ||= "stopped"; controller.abort(); running = null; } });
    const body = { model: node.model, messages: conversation.messages(user, this.form.system.value), ...settings, stream: true, logprobs: true, top_logprobs: ALTERNATIVES, stream_options: { continuous_usage_stats: true } };
    if (again !== undefined) this.redraw(again);
    this.draw();
    this.toEnd();
    if (document.activeElement === document.body) this.send.focus(); // the button that was pressed is gone
    this.store();
    const reply = new Reply(node, () => this.grow(index, node));
    try {
      for await (const piece of events(await request("/v1/chat/completions", body, controller.signal))) {
        if (!this.list.isConnected) return own.stop(); // another tab is open
        reply.add(piece);
      }
    } catch (error) {
      if (error.name !== "AbortError") Object.assign(node, { error: error.message, hint: HINTS[error.status] ?? "" });
    } finally {
      reply.finish();
      if (running === own) running = null;
      this.store();
      if (current === this && !running) this.finish(index, node);
    }
  }
  /** Show what was added to an answer. */
  grow(index, node) {
    const item = conversation.nodes[index] === node && this.item(index);
    if (!item) return;
    const follow = this.gap() < 60; // otherwise one has scrolled up to read
    fill(item.querySelector(".text"), node, this.view.value);
    item.querySelector(".facts").textContent = facts(node);
    this.count();
    if (follow) this.toEnd();
  }
  finish(index, node) {
    const follow = this.gap() < 60, item = conversation.nodes[index] === node && this.item(index);
    this.grow(index, node);
    if (item) refresh(item, conversation, index, this);
    this.working(false);
    if (follow) this.toEnd();
    this.spoken.textContent = node.error ? "" : node.finish === "stopped" ? "stopped" : `${node.model}: ${node.text || "empty answer"}`;
  }

  // Elements.
  item(index) {
    return this.list.children[conversation.path.indexOf(index)];
  }
  message(index) {
    const made = messageOf(conversation, index, this.view.value, this);
    if (conversation.nodes[index].role === "assistant") this.tip.watch(made.querySelector(".text"));
    return Object.assign(made, { index, versions: conversation.versions(index).length });
  }
  /** Show the chosen versions. Elements before the first that is no longer right stay: a long answer has thousands. */
  draw() {
    const { path } = conversation, old = [...this.list.children];
    const wrong = old.findIndex((one, at) => one.index !== path[at] || one.versions !== conversation.versions(path[at]).length), from = wrong < 0 ? old.length : wrong;
    this.tip.hide();
    for (const one of old.slice(from)) one.remove();
    this.list.append(...path.slice(from).map((index) => this.message(index)));
    this.welcome.hidden = path.length > 0;
    this.working(Boolean(running));
    this.count();
  }
  redraw(index) {
    this.item(index).replaceWith(this.message(index));
  }
  redrawAnswers() {
    for (const index of conversation.path) if (conversation.nodes[index].role === "assistant") this.redraw(index);
    this.working(Boolean(running));
  }
  /** While an answer is generated the button stops it, and messages cannot be changed. */
  working(on) {
    this.send.textContent = on ? "Stop" : "Send";
    this.send.classList.toggle("main", !on); // Ctrl+Enter presses the blue button
    for (const one of this.list.querySelectorAll("[data-act]:not([data-act^=Copy])")) one.disabled = on || one.last === true;
  }
  count() {
    const last = conversation.path.findLast((at) => conversation.nodes[at].usage), limit = find(this.model.value)?.context;
    const total = conversation.nodes[last]?.usage.total_tokens ?? 0, over = limit && total > limit;
    this.used.textContent = `${total.toLocaleString("en")}${limit ? ` of ${limit.toLocaleString("en")}` : ""} tokens of context${over ? ": the model no longer sees the oldest part" : ""}`;
    this.used.classList.toggle("error", Boolean(over));
  }
  focusOn(index, act) {
    const buttons = [...this.item(index).querySelectorAll("[data-act]:not(:disabled)")];
    (buttons.find((one) => one.dataset.act === act) ?? buttons[0])?.focus();
  }
  /** How far the end of the conversation is below the field for messages, in pixels. */
  gap() {
    return this.end.getBoundingClientRect().bottom - this.composer.getBoundingClientRect().top;
  }
  toEnd() {
    if (this.gap() > 0) scrollBy(0, this.gap() + 8);
  }
  store() {
    this.status.textContent = conversation.store() ? "" : "This conversation is too long to survive a reload: export it.";
  }
  storeDraft() {
    storeDraft(this.field.value, this.form.system.value, this.editing);
  }
}

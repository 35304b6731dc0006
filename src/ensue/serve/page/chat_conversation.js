// A conversation with all its versions: an edited message and a new answer stand beside the old ones.
// It is kept in the browser tab's own storage, which ends with the tab.

const KEY = "ensue-chat", DRAFT = "ensue-chat-draft";

/** Nodes are messages; `parent` is the one before, `next` the chosen one after it, -1 if there is none. */
export class Conversation {
  nodes = [];
  first = -1;

  /** The indices of the messages that are shown. */
  get path() {
    const found = [];
    for (let at = this.first; at >= 0; at = this.nodes[at].next) found.push(at);
    return found;
  }
  /** Add a message after another one, choose it, and return its index. */
  add(parent, node) {
    this.nodes.push({ ...node, parent, next: -1 });
    this.choose(this.nodes.length - 1);
    return this.nodes.length - 1;
  }
  choose(index) {
    const { parent } = this.nodes[index];
    if (parent < 0) this.first = index;
    else this.nodes[parent].next = index;
  }
  /** The versions of a message, itself among them. */
  versions(index) {
    const { parent } = this.nodes[index];
    return [...this.nodes.keys()].filter((other) => this.nodes[other].parent === parent);
  }
  /** The messages up to this one, as the API takes them; answers that failed before their first token are left out. */
  messages(index, system) {
    const found = [];
    for (let at = index; at >= 0; at = this.nodes[at].parent) {
      const { role, text, error } = this.nodes[at];
      if (!error || text) found.unshift({ role, content: text });
    }
    return system.trim() ? [{ role: "system", content: system }, ...found] : found;
  }
  /** All of it for a file: the messages that are shown, and every version with its tokens. */
  exported(system) {
    const path = this.path, last = path.at(-1) ?? -1;
    const versions = this.nodes.map(({ role, text, parent, pieces, next, ...rest }, index) => ({ index, parent, shown: path.includes(index), role, content: text, ...rest, ...(pieces && { tokens: pieces.flatMap(([, tokens]) => tokens.map(exportedToken)) }) }));
    return { messages: this.messages(last, system), versions };
  }

  /** Keep it for a reload; if there is no room, without the tokens' alternatives. False if not even the texts fit. */
  store() {
    const { nodes, first } = this;
    return keep(KEY, JSON.stringify({ nodes, first })) || keep(KEY, JSON.stringify({ first, nodes: nodes.map(({ pieces, ...node }) => node) }));
  }
  /** The stored conversation, or an empty one. */
  static restored() {
    const made = new Conversation(), { nodes, first } = read(KEY) ?? {};
    if (!Array.isArray(nodes) || !nodes.every(wellFormed) || !Number.isInteger(first) || first >= nodes.length) return made;
    for (const node of nodes) if (node.role === "assistant" && !node.finish && !node.error) node.finish = "interrupted"; // by the reload
    return Object.assign(made, { nodes, first });
  }
}

/** What was typed and not sent, the system prompt, and the message that is being edited. */
export const storeDraft = (draft, system, editing) => keep(DRAFT, JSON.stringify({ draft, system, editing }));
export function restoredDraft() {
  const { draft, system, editing } = read(DRAFT) ?? {};
  return { draft: String(draft ?? ""), system: String(system ?? ""), editing: typeof editing?.text === "string" ? editing : null };
}
export function forget() {
  for (const key of [KEY, DRAFT]) keep(key, null);
}

function keep(key, text) {
  try {
    text === null ? sessionStorage.removeItem(key) : sessionStorage.setItem(key, text);
    return true;
  } catch {
    return false; // full, or switched off
  }
}
function read(key) {
  try {
    return JSON.parse(sessionStorage.getItem(key));
  } catch {
    return null;
  }
}
/** Messages come after their parents, so a stored conversation without cycles ends. */
function wellFormed(node, index, nodes) {
  const after = (at) => at === -1 || (Number.isInteger(at) && at > index && at < nodes.length);
  return node && typeof node.text === "string" && ["user", "assistant"].includes(node.role) && Number.isInteger(node.parent) && node.parent < index && after(node.next) && (node.pieces ?? []).every?.((piece) => typeof piece?.[0] === "string" && Array.isArray(piece[1]));
}
const exportedToken = ([token, logprob, best]) => ({ token, logprob, top_logprobs: best.map(([other, value]) => ({ token: other, logprob: value })) });

// Shared by all tabs. Text from users and models is always set as text, never as markup.

/** The served runs and races; filled once, before any tab opens. */
export const registry = { runs: [], races: [] };

/** An element with properties, attributes and children; names with "on" are listeners. */
export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const row = (...children) => make("div", { className: "row" }, ...children);
export const soft = (text) => make("p", { className: "soft" }, text);
export const labelled = (name, field) => make("label", {}, name, field);
export const ticked = (name, field) => make("label", { className: "flat" }, field, name);
export const button = (name, onclick, more = {}) => make("button", { type: "button", onclick, ...more }, name);
export const number = (value, low, high, step = "any") =>
  make("input", { type: "number", required: true, value: String(value), min: String(low), max: String(high), step: String(step) });
export const area = (name, placeholder = "") => make("textarea", { "aria-label": name, placeholder });
export function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  return make("div", { className: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
export const cells = (...values) =>
  make("tr", {}, ...values.map((value) => (typeof value === "number" ? make("td", { className: "number" }, value.toFixed(3)) : make("td", {}, value))));

/** Okabe and Ito's colour-blind safe palette; the last is the text colour. */
const SHADES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor"];
export const shade = (index) => SHADES[index % SHADES.length];

/** Make white space visible. */
export const visible = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ | $/g, "␣") || "·";

/** True if the address has one of these settings: then a link restores the result. */
export const linked = (...names) => names.some((name) => settings().get(name));

/** A list of names with bars and numbers; with `go` each can be clicked. */
export function bars(items, { most = 1, digits = 3, go = null } = {}) {
  return make("ol", { className: "bars" }, ...items.map(({ name, value, enabled = true }) => {
    const share = make("span", { className: "bar" });
    share.style.width = `${Math.max(0, Math.min(100, (100 * value) / most))}%`;
    const parts = [share, make("span", {}, visible(name)), make("span", { className: "number" }, value.toFixed(digits))];
    const line = go ? button("", () => go(name), { disabled: !enabled, className: "line" }) : make("div", { className: "line" });
    line.append(...parts);
    return make("li", {}, line);
  }));
}

/** Turn a network error into a message; aborted requests stay as they are. */
export function networkError(error) {
  throw error.name === "AbortError" ? error : new Error("cannot reach the server");
}
/** Send a request; an error response is thrown with its message and status. */
export async function request(path, form, signal) {
  const options = form ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(form), signal } : { signal };
  const response = await fetch(path, options).catch(networkError);
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    throw Object.assign(new Error(body?.error?.message ?? `the server returned status ${response.status}`), { status: response.status });
  }
  return response;
}
export const json = async (path, form, signal) => (await request(path, form, signal)).json();
/** The server-sent events of a response, as objects; an event that is an error is thrown, and so is an early end. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const lost = (error) => { throw error?.name === "AbortError" ? error : new Error("the connection to the server was lost"); };
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done) lost();
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      if (!part.startsWith("data: {")) continue;
      const piece = JSON.parse(part.slice(6));
      if (piece.error) throw new Error(piece.error.message);
      yield piece;
    }
  }
}

export function showError(error, where) {
  if (error.name !== "AbortError") where.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
}
/** Validate number fields with the browser's own message. */
export function valid(...fields) {
  for (const field of fields)
    if (!field.checkValidity()) throw new Error(`${field.labels?.[0]?.firstChild.textContent ?? "a field"}: ${field.validationMessage}`);
}
/** The notes of a response, e.g. that a text was cut. */
export const notes = (response) => (response.notes ?? []).map(soft);
/** Run slow work; an error is shown in place of its result. */
export async function busy(where, work) {
  where.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    showError(error, where);
  } finally {
    where.removeAttribute("aria-busy");
  }
}
/** Debounce: of calls in quick succession only the last runs, and a running one is aborted. */
export function latest(wait, where, work) {
  let timer, running;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      running?.abort();
      const controller = (running = new AbortController());
      busy(where, () => work(controller.signal));
    }, wait);
  };
}

/** Copy a text; without a clipboard, which browsers withhold over plain HTTP, by selecting it. True if it worked. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { value: text, className: "unseen" }), focused = document.activeElement;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return copied;
  }
}

// Settings are kept in the address, so that a link restores the view.
export const settings = () => new URLSearchParams(location.hash.slice(1));
export function remember(values) {
  const state = settings();
  for (const [name, value] of Object.entries(values)) value === "" ? state.delete(name) : state.set(name, value);
  history.replaceState(null, "", `#${state}`);
}
/** A field whose value is kept in the address. */
export function kept(name, field) {
  const before = settings().get(name), ticks = field.type === "checkbox";
  if (before !== null) ticks ? (field.checked = before === "1") : (field.value = before);
  field.addEventListener("input", () => remember({ [name]: ticks ? (field.checked ? "1" : "") : field.value }));
  return field;
}
/** A field with the runs that have a capability. */
export function choice(name, capability) {
  return options(name, Object.fromEntries(withCapability(capability).map((run) => [run.id, `${run.id} (${run.system})`])));
}
/** A field with these values, kept in the address. */
export function options(name, values) {
  const field = make("select", {}, ...Object.entries(values).map(([value, text]) => make("option", { value }, text)));
  kept(name, field);
  if (field.selectedIndex < 0) field.selectedIndex = 0;
  return field;
}
export const withCapability = (capability) => registry.runs.filter((run) => run.can.includes(capability));
export const some = (capability) => withCapability(capability).length > 0;
export const find = (id) => registry.runs.find((run) => run.id === id);
export function nothing(main, what, how, to = "To train one") {
  main.replaceChildren(make("p", {}, `No served run ${what}. ${to}: `, make("code", {}, how)));
}

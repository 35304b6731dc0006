// What all views share. Text of people and models is only ever set as text, never as markup.

/** The runs that are served, and the races; filled once, before any view opens. */
export const hall = { runs: [], races: [] };

/** An element with properties, attributes and children; "on…" are listeners. */
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

/** Okabe and Ito's colours, which colour-blind eyes can tell apart; the last is the page's ink. */
const SHADES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor"];
export const shade = (place) => SHADES[place % SHADES.length];

/** White space that can be seen. */
export const seen = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/^ | $/g, "␣") || "·";

/** Whether the address has something of these: then a link brings it back, done. */
export const linked = (...names) => names.some((name) => settings().get(name));

/** A list of names with bars and numbers; each can be chosen where `go` is given. */
export function bars(items, { most = 1, digits = 3, go = null } = {}) {
  return make("ol", { className: "bars" }, ...items.map(({ name, value, able = true }) => {
    const share = make("span", { className: "bar" });
    share.style.width = `${Math.max(0, Math.min(100, (100 * value) / most))}%`;
    const inside = [share, make("span", {}, seen(name)), make("span", { className: "number" }, value.toFixed(digits))];
    const line = go ? button("", () => go(name), { disabled: !able, className: "line" }) : make("div", { className: "line" });
    line.append(...inside);
    return make("li", {}, line);
  }));
}

/** What went wrong on the way to the server, as a sentence; what was given up stays what it is. */
export function unreached(error) {
  throw error.name === "AbortError" ? error : new Error("the server cannot be reached");
}
/** Ask the server; what it refuses is an error with its sentence and its status. */
export async function ask(path, form, signal) {
  const how = form ? { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(form), signal } : { signal };
  const answer = await fetch(path, how).catch(unreached);
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw Object.assign(new Error(told?.error?.message ?? `the server answered ${answer.status}`), { status: answer.status });
  }
  return answer;
}
export const json = async (path, form, signal) => (await ask(path, form, signal)).json();

export function failed(error, where) {
  if (error.name !== "AbortError") where.replaceChildren(make("p", { className: "error", role: "alert" }, error.message));
}
/** Refuse numbers that are not allowed before the server must; the browser says what is wrong with them. */
export function valid(...fields) {
  for (const field of fields)
    if (!field.checkValidity()) throw new Error(`${field.labels?.[0]?.firstChild.textContent ?? "a field"}: ${field.validationMessage}`);
}
/** What the server says beside its answer: that a text was cut, say. */
export const noted = (told) => (told.notes ?? []).map(soft);
/** Do something that takes its time: what goes wrong is said where its result would stand. */
export async function busy(where, work) {
  where.setAttribute("aria-busy", "true");
  try {
    await work();
  } catch (error) {
    failed(error, where);
  } finally {
    where.removeAttribute("aria-busy");
  }
}
/** Calls that come fast after each other are one, the last; what was under way is given up. */
export function latest(wait, where, work) {
  let timer, under;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      under?.abort();
      const own = (under = new AbortController());
      busy(where, () => work(own.signal));
    }, wait);
  };
}

// What a view is of stands in the address, so that a link brings it back.
export const settings = () => new URLSearchParams(location.hash.slice(1));
export function remember(values) {
  const held = settings();
  for (const [name, value] of Object.entries(values)) value === "" ? held.delete(name) : held.set(name, value);
  history.replaceState(null, "", `#${held}`);
}
/** A field whose value the address remembers. */
export function kept(name, field) {
  const before = settings().get(name), ticks = field.type === "checkbox";
  if (before !== null) ticks ? (field.checked = before === "1") : (field.value = before);
  field.addEventListener("input", () => remember({ [name]: ticks ? (field.checked ? "1" : "") : field.value }));
  return field;
}
/** A field with the runs that can do something; the address remembers which. */
export function choice(name, ability) {
  const able = hall.runs.filter((one) => one.can.includes(ability));
  const field = make("select", {}, ...able.map((one) => make("option", { value: one.id }, `${one.id} (${one.system})`)));
  kept(name, field);
  if (field.selectedIndex < 0) field.selectedIndex = 0;
  return field;
}
export function options(name, values) {
  const field = make("select", {}, ...Object.entries(values).map(([value, text]) => make("option", { value }, text)));
  kept(name, field);
  if (field.selectedIndex < 0) field.selectedIndex = 0;
  return field;
}
export const some = (ability) => hall.runs.some((one) => one.can.includes(ability));
export const find = (id) => hall.runs.find((one) => one.id === id);
export function nothing(main, what, how) {
  main.replaceChildren(make("p", {}, `None of these runs ${what}. To have one: `, make("code", {}, how)));
}

const nodes = JSON.parse(document.getElementById("data").textContent);
const panel = document.getElementById("node");
const names = [["step", "step"], ["log_prob", "log P of this token"], ["total", "total"], ["score", "score"],
  ["fate", "fate"], ["why", "why"]];
function make(kind, text) { const made = document.createElement(kind); made.textContent = text; return made; }
function show(shape) {
  const node = nodes[shape.dataset.id], list = document.createElement("dl");
  for (const [key, name] of names) {
    if (node[key] === "") continue;
    const pair = document.createElement("div");
    pair.append(make("dt", name), make("dd", node[key]));
    list.append(pair);
  }
  const text = [];
  for (let at = shape.dataset.id; at !== null; at = nodes[at].parent) text.unshift(nodes[at].token);
  panel.replaceChildren(make("b", text.join(" ")), list);
  document.querySelectorAll("svg .chosen").forEach(other => other.classList.remove("chosen"));
  document.querySelectorAll('svg [data-id="' + shape.dataset.id + '"]').forEach(same => same.classList.add("chosen"));
}
function step(shape, key) {
  const tree = shape.closest("svg"), node = nodes[shape.dataset.id];
  const find = id => tree.querySelector('[data-id="' + id + '"]');
  if (key === "ArrowLeft") return node.parent === null ? null : find(node.parent);
  if (key === "ArrowRight") {
    const children = node.children.map(find).filter(Boolean);
    return children.find(child => child.classList.contains("best")) || children[0];
  }
  const y = g => g.transform.baseVal.getItem(0).matrix.f, sign = key === "ArrowDown" ? 1 : -1;
  return [...tree.querySelectorAll("[data-id]")]
    .filter(g => nodes[g.dataset.id].step === node.step && sign * (y(g) - y(shape)) > 0)
    .sort((a, b) => sign * (y(a) - y(b)))[0];
}
for (const tree of document.querySelectorAll(".tree")) {
  const shape = event => event.target.closest("[data-id]");
  for (const kind of ["pointerover", "focusin", "click"])
    tree.addEventListener(kind, event => { if (shape(event)) show(shape(event)); });
  tree.addEventListener("keydown", event => {
    const at = shape(event);
    if (!at || !/^Arrow/.test(event.key)) return;
    event.preventDefault();
    const next = step(at, event.key);
    if (!next) return;
    at.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
function centre() {
  for (const tree of document.querySelectorAll(".tree"))
    tree.scrollTop = tree.dataset.line - tree.clientHeight / 2;
}
const upto = document.getElementById("upto");
function open(step) {
  upto.value = step;
  document.getElementById("step").textContent = upto.value;
  stands(Number(upto.value));
  for (const part of document.querySelectorAll(".tree [data-step]"))
    part.classList.toggle("late", Number(part.dataset.step) > Number(upto.value));
}
upto.addEventListener("input", () => open(Number(upto.value)));
document.getElementById("back").addEventListener("click", () => open(Number(upto.value) - 1));
document.getElementById("next").addEventListener("click", () => open(Number(upto.value) + 1));
document.getElementById("hide").addEventListener("change", centre);
centre();
if (asked) open(Number(asked[1]));

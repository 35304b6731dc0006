const nodes = data, panel = find("node"), upto = find("upto");
const NAMES = { step: "step", log_prob: "log P of this token", total: "total", score: "score", fate: "fate", why: "why" };
function show(shape) {
  const node = nodes[shape.dataset.id], text = [];
  for (let at = shape.dataset.id; at !== null; at = nodes[at].parent) text.unshift(nodes[at].token);
  const shown = Object.entries(NAMES).filter(([key]) => node[key] !== "");
  panel.replaceChildren(make("b", text.join(" ")), definitions(shown.map(([key, name]) => [name, node[key]])));
  document.querySelectorAll("svg .chosen").forEach(other => other.classList.remove("chosen"));
  document.querySelectorAll('svg [data-id="' + shape.dataset.id + '"]').forEach(same => same.classList.add("chosen"));
}
// The node that an arrow key leads to.
function neighbour(shape, key) {
  const tree = shape.closest("svg"), node = nodes[shape.dataset.id];
  const shapeOf = id => tree.querySelector('[data-id="' + id + '"]');
  if (key === "ArrowLeft") return node.parent === null ? null : shapeOf(node.parent);
  if (key === "ArrowRight") {
    const children = node.children.map(shapeOf).filter(Boolean);
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
    const next = neighbour(at, event.key);
    if (!next) return;
    at.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
// Scroll to the best hypothesis.
function centre() {
  for (const tree of document.querySelectorAll(".tree"))
    tree.scrollTop = tree.dataset.line - tree.clientHeight / 2;
}
function open(step) {
  upto.value = step;
  find("step").textContent = upto.value;
  reportStep(Number(upto.value));
  for (const part of document.querySelectorAll(".tree [data-step]"))
    part.classList.toggle("late", Number(part.dataset.step) > Number(upto.value));
}
upto.addEventListener("input", () => open(Number(upto.value)));
find("back").addEventListener("click", () => open(Number(upto.value) - 1));
find("next").addEventListener("click", () => open(Number(upto.value) + 1));
find("hide").addEventListener("change", centre);
centre();
if (linkedStep) open(Number(linkedStep));

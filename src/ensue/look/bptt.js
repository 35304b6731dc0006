const ROWS = { J: 26, "ŷ": 86, z: 146, h: 216, s: 286, x: 356 }, RADIUS = 17;
const WEIGHTS = { xs: "u", hs: "w", hz: "v" };
const picture = find("picture"), key = ([letter, t]) => letter + t;

function allEdges() {
  const edges = [];
  for (let t = 1; t <= data.T; t++)
    edges.push([["x", t], ["s", t]], [["h", t - 1], ["s", t]], [["s", t], ["h", t]], [["h", t], ["z", t]],
      [["z", t], ["ŷ", t]], [["ŷ", t], ["J", t]]);
  return edges;
}
const column = () => Math.max(78, Math.min(130, Math.floor((picture.clientWidth - 60) / (data.T + 0.7))));
const position = ([letter, t]) => [40 + t * column(), ROWS[letter]];

// An edge from circle to circle; in the backward pass its arrowhead is at the lower end.
function line(edge, on, backward) {
  let [from, to] = on && backward ? [edge[1], edge[0]] : edge;
  const [x1, y1] = position(from), [x2, y2] = position(to), long = Math.hypot(x2 - x1, y2 - y1);
  const [dx, dy] = [(x2 - x1) / long, (y2 - y1) / long], far = RADIUS + 3;
  const [ax, ay, bx, by] = [x1 + dx * far, y1 + dy * far, x2 - dx * far, y2 - dy * far], size = on ? 9 : 7;
  const tip = `M${bx} ${by}L${bx - dx * size - dy * size / 2} ${by - dy * size + dx * size / 2}` +
    `L${bx - dx * size + dy * size / 2} ${by - dy * size - dx * size / 2}Z`;
  return [draw("path", { class: on ? "on" : "", d: `M${ax} ${ay}L${bx - dx * size / 2} ${by - dy * size / 2}` }),
    draw("path", { class: on ? "head on" : "head", d: tip })];
}
function weightName(edge, on, highlighted) {
  const weight = WEIGHTS[edge[0][0] + edge[1][0]], [x1, y1] = position(edge[0]), [x2, y2] = position(edge[1]);
  const aside = edge[0][0] === "h" && edge[1][0] === "s" ? [4, -9] : [-13, 5];
  return draw("text", { class: "weight" + (highlighted ? " highlighted" : on ? " on" : ""),
    x: (x1 + x2) / 2 + aside[0], y: (y1 + y2) / 2 + aside[1] }, weight);
}
function node(at, on, known) {
  const [x, y] = position(at), [letter, t] = at, computed = known === null || t <= known;
  const off = !computed || (letter === "J" && t > 0 && !data.costs.includes(t));
  const group = draw("g", { class: (on ? "on" : "") + (off ? " off" : "") });
  group.append(draw("circle", { cx: x, cy: y, r: RADIUS }),
    draw("text", { class: "name", x, y: y + 5 }, `${letter}(${t})`.length > 4 ? letter + t : `${letter}(${t})`));
  const value = data.values[key(at)];
  if (value !== undefined && computed) group.append(draw("text", { class: "value", x: x + RADIUS + 3, y: y + 4 }, value));
  return group;
}
function graph(step) {
  const on = new Set(step.way.map(edge => edge.map(key).join())), lit = new Set(step.way.flat().map(key));
  const wide = 40 + data.T * column() + RADIUS + 60;
  const svg = draw("svg", { width: wide, height: ROWS.x + RADIUS + 8, role: "img", "aria-labelledby": "title" });
  svg.style.fontSize = "12px";
  const edges = allEdges(), shown = edge => on.has(edge.map(key).join());
  for (const edge of [...edges.filter(e => !shown(e)), ...edges.filter(shown)])
    svg.append(...line(edge, shown(edge), step.backward));
  for (const edge of edges) if (edge[0][0] + edge[1][0] in WEIGHTS)
    svg.append(weightName(edge, shown(edge), edge[0][0] === "h" && edge[1][0] === "s" && edge[1][1] === step.weight));
  const nodes = new Map([[key(["h", 0]), ["h", 0]], ...edges.flat().map(at => [key(at), at])]);
  for (const at of nodes.values()) svg.append(node(at, lit.has(key(at)), step.known));
  if (data.cut) {
    const x = position(["h", data.cut])[0] + column() / 2;
    svg.append(draw("path", { class: "cut", d: `M${x} 10V${ROWS.x}` }), draw("text", { class: "cut", x, y: ROWS.x + 18 }, "cut"));
  }
  return svg;
}
function matrix(rows) {
  if (rows.length === 1 && rows[0].length === 1) return make("span", rows[0][0]);
  const table = make("table", undefined, "matrix");
  for (const row of rows) table.insertRow().append(...row.map(figure => make("td", figure)));
  return table;
}
function numbers(step) {
  const table = make("table", undefined, "lines"), product = step.weight !== null;
  [...step.lines, step.result].forEach((one, i) => {
    const row = table.insertRow(), last = i === step.lines.length, value = make("td");
    row.className = last ? "result" : "";
    value.append(matrix(one.value));
    row.append(make("td", last || i === 0 || !product ? "" : "·", "dot"), make("td", one.name, "name"), make("td", "="), value);
  });
  return table;
}
function show() {
  const step = steps[at];
  picture.replaceChildren(graph(step));
  find("numbers").replaceChildren(numbers(step));
  describe(step);
}

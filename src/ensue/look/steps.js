const MIN_LINE = 0.02, MIN_TEXT = 0.05, HEIGHT = 24, GAP = 6; // the smallest weights with a line and with a number; pixels
const picture = find("picture");
let picked = null;

const pen = document.createElement("canvas").getContext("2d");
pen.font = "600 14px ui-monospace, monospace";
const widthOf = label => Math.ceil(pen.measureText(label).width) + 14;

// Two rows of tokens from left to right if there is room, else two columns.
function layout(first, second, lines = true) {
  const room = picture.clientWidth, widths = [first, second].map(line => line.map(widthOf));
  const tokens = Math.max(first.length, second.length);
  const long = gap => Math.max(...widths.map(line => line.reduce((sum, width) => sum + width + gap, -gap)));
  if (long(GAP) <= room) {
    const below = lines ? 46 + Math.min(240, 90 + 8 * tokens) : 46;
    const gap = Math.min(40, Math.max(GAP, Math.floor((room - long(0)) / tokens)));  // wider gaps if there is room
    const boxes = (line, y) => {
      let x = 0;
      return line.map(width => { const box = { x, y, width }; x += width + gap; return box; });
    };
    return { across: true, first: boxes(widths[0], 42), second: boxes(widths[1], 42 + below),
      width: room, height: 42 + below + HEIGHT + 20, names: [[0, 14], [0, 42 + below + HEIGHT + 16]] };
  }
  const left = Math.max(...widths[0]), right = Math.max(0, ...widths[1]), start = 38;
  const end = Math.max(room - right, start + left + 40);
  const boxes = (line, x, size) => line.map((width, i) =>
    ({ x: size ? x + size - width : x, y: 26 + i * (HEIGHT + GAP), width }));
  return { across: false, first: boxes(widths[0], start, left), second: boxes(widths[1], end, 0),
    width: end + right, height: 26 + tokens * (HEIGHT + GAP), names: [[start, 14], [end + right, 14, "end"]] };
}
function tokenBox(label, box, kind) {
  const group = draw("g", { class: "token " + kind, transform: "translate(" + box.x + " " + box.y + ")" });
  group.append(draw("rect", { width: box.width, height: HEIGHT, rx: 6 }),
    draw("text", { x: box.width / 2, y: 17, "text-anchor": "middle" }, label));
  return group;
}
function line(from, to, across, weight, faint) {
  const [x1, y1, x2, y2] = across ? [from.x + from.width / 2, from.y, to.x + to.width / 2, to.y + HEIGHT]
    : [from.x, from.y + HEIGHT / 2, to.x + to.width, to.y + HEIGHT / 2];
  const bend = across ? [x1, (y1 + y2) / 2, x2, (y1 + y2) / 2] : [(x1 + x2) / 2, y1, (x1 + x2) / 2, y2];
  return draw("path", { d: `M${x1} ${y1}C${bend[0]} ${bend[1]} ${bend[2]} ${bend[3]} ${x2} ${y2}`,
    "stroke-width": 1 + 5 * weight, opacity: faint + (1 - faint) * weight });
}
function weightText(weight, box, across) {
  const [x, y] = across ? [box.x + box.width / 2, box.y - 5] : [box.x - 4, box.y + 17];
  return draw("text", { x, y, class: "small weight", "text-anchor": across ? "middle" : "end" },
    weight.toFixed(2).slice(weight < 0.995 ? 1 : 0));
}
function newSvg(positions, names) {
  const svg = draw("svg", { width: positions.width, height: positions.height,
    viewBox: `0 0 ${positions.width} ${positions.height}`, role: "group", "aria-labelledby": "title" });
  names.forEach((name, i) => name &&
    svg.append(draw("text", { x: positions.names[i][0], y: positions.names[i][1], class: "small",
      "text-anchor": positions.names[i][2] || "start" }, name)));
  return svg;
}
function drawLines(svg, positions, weights, from, faint) {
  weights.map((weight, i) => [weight, i]).sort((a, b) => a[0] - b[0]).forEach(([weight, i]) => {
    if (weight >= MIN_LINE) svg.append(line(positions.second[from], positions.first[i], positions.across, weight, faint));
  });
}
function drawWeights(svg, positions, weights) {
  weights.forEach((weight, i) => weight >= MIN_TEXT && svg.append(weightText(weight, positions.first[i], positions.across)));
}

function encode(step) {
  const positions = layout(data.source, data.source);
  const svg = newSvg(positions, ["input of the layer", "output of the layer"]);
  if (picked === null) step.weights.forEach((row, i) => drawLines(svg, positions, row, i, 0.08));
  else {
    drawLines(svg, positions, step.weights[picked], picked, 0.25);
    drawWeights(svg, positions, step.weights[picked]);
  }
  data.source.forEach((label, i) => svg.append(tokenBox(label, positions.first[i], "")));
  data.source.forEach((label, i) => {
    const token = tokenBox(label, positions.second[i], i === picked ? "picked" : "");
    const best = step.weights[i].map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    const spoken = label + " attends most to " + best.map(([w, j]) => data.source[j] + " " + w.toFixed(2)).join(", ");
    for (const [name, value] of Object.entries({ tabindex: 0, role: "button", "data-token": i, "aria-label": spoken,
      "aria-pressed": i === picked })) token.setAttribute(name, value);
    token.append(draw("title", {}, spoken));
    svg.append(token);
  });
  return svg;
}
function read(step) {
  const positions = layout(data.source, []), svg = newSvg(positions, ["source"]);
  data.source.forEach((label, i) => svg.append(tokenBox(label, positions.first[i], "")));
  const last = positions.first[positions.first.length - 1], passes = step.passes || [];
  let n = 0, end = positions.across ? 42 + HEIGHT : last.y + HEIGHT, far = 0;
  passes.forEach((directions, layer) => directions.forEach(direction => {
    const size = positions.across ? last.x + last.width : end - 26, off = (positions.across ? 32 : 18) + (positions.across ? 30 : 22) * n++;
    const [a, b] = direction === "forward" ? [0, size] : [size, 0], tip = direction === "forward" ? -7 : 7;
    const point = (along, aside) => positions.across ? `${along} ${42 + HEIGHT + aside}`
      : `${38 + Math.max(...positions.first.map(box => box.width)) + aside} ${26 + along}`;
    svg.append(draw("path", { class: "arrow",
      d: `M${point(a, off)}L${point(b, off)}M${point(b + tip, off - 5)}L${point(b, off)}L${point(b + tip, off + 5)}` }));
    far = off;
    if (positions.across) svg.append(draw("text", { x: 0, y: 42 + HEIGHT + off - 8, class: "small" },
      `layer ${layer + 1}, ${direction}`));
  }));
  const height = positions.across ? 42 + HEIGHT + far + 12 : end + 8;
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${positions.width} ${height}`);
  return svg;
}
function decode(step) {
  const positions = layout(data.source, data.target, step.weights !== null);
  const svg = newSvg(positions, ["source", "target so far"]);
  if (step.weights) {
    drawLines(svg, positions, step.weights, step.place, 0.25);
    drawWeights(svg, positions, step.weights);
  }
  data.source.forEach((label, i) => svg.append(tokenBox(label, positions.first[i], "")));
  for (let i = 0; i <= step.place; i++)
    svg.append(tokenBox(data.target[i], positions.second[i], i === step.place ? "new" : ""));
  return svg;
}
function choices(step) {
  const table = make("table");
  table.append(make("caption", "The most probable next tokens; ✓ marks the chosen one"));
  for (const choice of step.choices) {
    const row = table.insertRow(), bar = make("div");
    row.className = choice.chosen ? "chosen" : "";
    bar.style.width = 100 * choice.prob + "%";
    const cell = make("td", undefined, "bar");
    cell.append(bar);
    row.append(make("td", choice.chosen ? "✓" : "", "mark"), make("td", choice.rank + ".", "figure"),
      make("td", choice.token, "name"), make("td", choice.prob.toFixed(3), "figure"), cell);
  }
  return [table, definitions([["log P of this token", step.log_prob], ["sum so far", step.total]])];
}
const drawn = { encode, read, decode };
const legend = "The stronger a line, the larger the weight; weights under 0.02 have no line.";
const hints = {
  encode: "Each output token attends to the input tokens; choose an output token to show only its lines. ",
  read: "", decode: "",
};

function show() {
  const step = steps[at], focused = picture.contains(document.activeElement);
  picture.parentNode.classList.toggle("reading", step.kind !== "decode");
  find("choices").replaceChildren(...(step.kind === "decode" ? choices(step) : []));
  picture.replaceChildren();
  picture.append(drawn[step.kind](step));
  find("hint").textContent = step.weights ? hints[step.kind] + legend : "";
  describe(step);
  if (focused) (picture.querySelector(`[data-token="${picked}"]`) || find("play")).focus();
}
document.addEventListener("keydown", event => {
  const token = event.target.closest("[data-token]");
  if (!token || (event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  pick(Number(token.dataset.token));
});
function pick(i) {
  picked = picked === i ? null : i;
  show();
  const token = picture.querySelector(`[data-token="${i}"]`);
  if (token) token.focus();
}
picture.addEventListener("click", event => {
  const token = event.target.closest("[data-token]");
  if (token) pick(Number(token.dataset.token));
});

"use strict";
// What all pages do: they open at the step that the address names and tell a page that frames them where they stand;
// and they end with buttons for their picture, as it is seen, and for their numbers.
const asked = /^#step=(\d+)$/.exec(location.hash);
function stands(step) {
  if (parent !== window) parent.postMessage({ step }, "*");
}
function save(name, address) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}
const EDGE = 8; // what stands at the edge of a drawing reaches over it by its outline
async function photographed() {
  const svg = [...document.querySelectorAll("main svg")].find(one => one.clientWidth), copy = svg.cloneNode(true);
  const size = [svg.clientWidth, svg.clientHeight].map(one => one + 2 * EDGE), scale = Math.min(2, 8000 / Math.max(...size));
  const seen = [svg, ...svg.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  seen.forEach((part, place) => {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "visibility", "font", "text-anchor"])
      copies[place].style.setProperty(name, style.getPropertyValue(name));
  });
  const place = { x: EDGE, y: EDGE, width: svg.clientWidth, height: svg.clientHeight };
  for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
  copy.style.overflow = "visible";
  const whole = document.createElementNS(svg.namespaceURI, "svg");
  ["width", "height"].forEach((name, at) => whole.setAttribute(name, size[at]));
  whole.style.background = getComputedStyle(document.body).backgroundColor;
  whole.append(copy);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(whole));
  await image.decode();
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = size.map(one => Math.round(one * scale));
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
addEventListener("DOMContentLoaded", () => {
  const numbers = document.getElementById("data").textContent, bar = document.createElement("p"), { page: name } = document.body.dataset;
  const ways = { PNG: async () => save(`${name}.png`, await photographed()),
    JSON: () => save(`${name}.json`, "data:application/json;charset=utf-8," + encodeURIComponent(numbers)) };
  for (const [kind, way] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.addEventListener("click", way);
    bar.append(button);
  }
  bar.className = "savers";
  document.querySelector("main").append(bar);
});

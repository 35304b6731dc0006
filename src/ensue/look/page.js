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
async function photographed() {
  const svg = [...document.querySelectorAll("main svg")].find(one => one.clientWidth), copy = svg.cloneNode(true);
  const size = [svg.clientWidth, svg.clientHeight], scale = Math.min(2, 8000 / Math.max(...size));
  const seen = [svg, ...svg.querySelectorAll("*")], copies = [copy, ...copy.querySelectorAll("*")];
  seen.forEach((part, place) => {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "visibility", "font", "text-anchor"])
      copies[place].style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", size[0]);
  copy.setAttribute("height", size[1]);
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  await image.decode();
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = size.map(one => Math.round(one * scale));
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}
addEventListener("DOMContentLoaded", () => {
  const numbers = document.getElementById("data").textContent, bar = document.createElement("p");
  const ways = { PNG: async () => save("picture.png", await photographed()),
    JSON: () => save("numbers.json", "data:application/json;charset=utf-8," + encodeURIComponent(numbers)) };
  for (const [name, way] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", way);
    bar.append(button);
  }
  bar.className = "savers";
  document.querySelector("main").append(bar);
});

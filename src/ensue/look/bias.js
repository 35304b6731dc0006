// Links to the sections; all details open in print.
for (const section of document.querySelectorAll("section")) {
  const link = make("a", section.querySelector("h2").textContent);
  link.href = `#${section.id}`;
  document.querySelector("nav").append(link);
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => (one.open = true)));

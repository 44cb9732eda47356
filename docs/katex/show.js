// Formulas of a page, shown by KaTeX. The extension `arithmatex` leaves them as \(...\) and \[...\] in elements of its class.
function showFormulas() {
  for (const element of document.querySelectorAll(".arithmatex:not([data-shown])")) {
    const text = element.textContent.trim();
    element.dataset.shown = "";
    katex.render(text.slice(2, -2), element, { displayMode: text.startsWith("\\["), throwOnError: false });
  }
}
document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", showFormulas) : showFormulas();

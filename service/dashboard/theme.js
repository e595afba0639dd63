// Runs before the first paint, so that a dark page does not flash white.
(() => {
  const stored = localStorage.getItem("cbwk.theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
})();

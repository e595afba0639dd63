// Runs before anything is painted, so that nobody who wants it dark is dazzled first.
(() => {
  const kept = localStorage.getItem("cbwk.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();

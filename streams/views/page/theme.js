// Runs before the first paint, so that a page in the dark does not flash white.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("perdure.theme");
  } catch {
    // Storage can be forbidden: then the system's choice stands.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

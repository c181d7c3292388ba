// Runs before the first paint, so that a chosen theme does not flash. The page's policy forbids inline scripts.
(function () {
  try {
    var theme = localStorage.getItem("sayso.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) {
    // Storage may be closed to us; the system's theme is used.
  }
})();

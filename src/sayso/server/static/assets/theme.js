// Runs before the first paint to avoid a flash of the wrong theme. Not inline, because the CSP forbids inline scripts.
(function () {
  try {
    var theme = localStorage.getItem("sayso.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (error) {
    // Storage may be blocked. The system theme applies.
  }
})();

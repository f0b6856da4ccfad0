// Runs before the page is drawn, so that a chosen theme does not flash. The switch is in app.js.
"use strict";
try {
  const chosen = localStorage.getItem("trine.theme");
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
} catch {
  // storage is off: the system's theme it is
}

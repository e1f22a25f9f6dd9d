// Keys go to the console at once: the library waits for a click. It says that it draws by a class of the body.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const focus = () => document.querySelector(".xterm-helper-textarea")?.focus();
  new MutationObserver(focus).observe(document.body, { attributeFilter: ["class"] });
  window.addEventListener("focus", focus);
});

"use strict";
// Buttons that copy the commands beside them: by the clipboard where the browser allows it, else by selecting them.
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    const told = document.getElementById(button.dataset.tells);
    try {
      await navigator.clipboard.writeText(source.textContent);
      told.textContent = "Copied.";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      told.textContent = document.execCommand("copy") ? "Copied." : "Selected: copy with Ctrl+C.";
    }
  });
}
// Tables are folded away on the screen; printed, they are shown.
const folded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    folded.push(details);
  }
});
addEventListener("afterprint", () => {
  while (folded.length) folded.pop().open = false;
});

// SPDX-License-Identifier: Apache-2.0
// The theme lets the keyboard scroll code that is wider than its box, but looks only when the window
// changes. What a reader unfolds is looked at too.
document.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")), true);

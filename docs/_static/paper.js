// SPDX-License-Identifier: Apache-2.0
// On paper a page is light, whichever theme is chosen.
"use strict";

const paper = matchMedia("print");
const { dataset } = document.documentElement;
let chosen = dataset.theme;

paper.addEventListener("change", () => {
  if (paper.matches) chosen = dataset.theme;
  dataset.theme = paper.matches ? "light" : chosen;
});

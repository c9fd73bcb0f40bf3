// SPDX-License-Identifier: Apache-2.0
// Look at the built site as a reader does: light and dark, wide and narrow. A light page is opened
// wide and then made narrow, a dark one the other way.
// Prints a line for each fault and exits with 1 if there is one.
//   node tests/docs/browser.mjs SITE [--shots FOLDER] [PAGE ...]      without pages: all but indices
import { createRequire } from "node:module";
import { mkdir, readdir } from "node:fs/promises";
import { extname, join } from "node:path";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import { launch, serve } from "./serve.mjs";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { shots: { type: "string" } },
});
const [site, ...named] = positionals;
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 390, height: 844 };
const SCHEMES = { light: [WIDE, NARROW], dark: [NARROW, WIDE] };
// The rules of axe that depend on both; the others look at each theme once and at each width once.
const COLOURS = { runOnly: ["color-contrast", "link-in-text-block"] };
const LIMIT = 250 * 1024;
const PATIENT = { polling: 100, timeout: 20_000 };
// The size that counts is that of text: HTML, CSS and scripts, without fonts, images and the search index.
const COUNTED = new Set([".html", ".css", ".js"]);

const { origin, stop } = await serve(site);
const browser = await launch();
const weights = new Map();
let faults = 0;

/** Whether a file is part of what a page may weigh. */
function counts(url) {
  const { pathname } = new URL(url);
  return COUNTED.has(extname(pathname)) && !pathname.endsWith("searchindex.js");
}

/** The compressed size of a file; those that pages share are compressed once. */
async function weigh(response) {
  const url = response.url();
  if (!weights.has(url)) weights.set(url, gzipSync(await response.body()).length);
  return weights.get(url);
}

/** Open a page in one theme, in both widths, and report all that a reader would stumble over. */
async function look(page, path, scheme) {
  const [first, second] = SCHEMES[scheme];
  let { width } = first;
  const fault = (what) => {
    faults += 1;
    console.log(`${path} ${scheme} ${width}px: ${what}`);
  };
  await page.setViewportSize(first);
  await open(page, path, fault);
  if (await page.locator(".stepper").count()) {
    await step(page, fault);
    if (first === NARROW) await squeeze(page, fault);
  }
  await page.evaluate(unfold);
  await page.evaluate(thin);
  await page.addScriptTag({ path: axe });
  await check(page, path, scheme, fault, {});
  ({ width } = second);
  await page.setViewportSize(second);
  await page.evaluate(settled);
  await check(page, path, scheme, fault, COLOURS);
  page.removeAllListeners();
}

/** Load a page, and report what goes wrong meanwhile, or weighs too much. */
async function open(page, path, fault) {
  page.on("console", (message) => message.type() === "error" && fault(`console: ${message.text()}`));
  page.on("pageerror", (error) => fault(`script: ${error.message}`));
  page.on("request", (request) => {
    const own = request.url().startsWith(origin) || request.url().startsWith("data:");
    if (!own) fault(`asks another host: ${request.url()}`);
  });
  const parts = [];
  page.on("response", (response) => counts(response.url()) && parts.push(weigh(response)));
  await page.goto(`${origin}/${path}`, { waitUntil: "load" });
  const size = (await Promise.all(parts)).reduce((sum, part) => sum + part, 0);
  if (size > LIMIT) fault(`${size} bytes compressed, over ${LIMIT}`);
}

/** Look at an open page as it is now, with some of axe's rules or all. */
async function check(page, path, scheme, fault, rules) {
  for (const found of await page.evaluate(inspect, scheme)) fault(found);
  for (const { id, nodes } of await page.evaluate(ask, rules)) {
    for (const node of nodes) fault(`axe ${id}: ${node.html.slice(0, 160)}`);
  }
  if (options.shots) {
    const { width } = page.viewportSize();
    const name = `${path.replaceAll("/", "-").replace(".html", "")}-${scheme}-${width}.png`;
    await page.screenshot({ path: join(options.shots, name), fullPage: true });
  }
}

/** Use the figure that steps through a block: keys, buttons, the slider, a tap, a swipe, paper. */
async function step(page, fault) {
  const expect = (condition, complaint) => condition || fault(`stepper: ${complaint}`);
  const see = () => page.evaluate(shown);
  const press = async (key) => (await page.keyboard.press(key), see());
  const use = (how, ...where) => page.evaluate(how, where).then(see);
  expect(!(await see()).strip, "the strip is shown beside the player");
  await use(focus, ".player");
  const end = await press("End");
  expect(end.at === end.steps && end.story.endsWith("The block ends."), `End goes to step ${end.at}`);
  expect(end.stages.every((state) => state === "empty"), `it ends with stages ${end.stages}`);
  expect((await press("ArrowRight")).at === end.steps, "there is a step behind the last one");
  const start = await press("Home");
  const second = await press("ArrowRight");
  expect(start.at === 1 && second.at === 2, `Home goes to ${start.at}, the next is ${second.at}`);
  expect(second.story !== start.story && second.numbers !== start.numbers, "a step shows nothing new");
  expect(second.stages[0] === "filling", `after the first load stage 0 is ${second.stages[0]}`);
  expect(second.line, "the line of the role that acts cannot be seen");
  expect((await use(click, '[data-go="next"]')).at === 3, "a button does not step");
  await use(focus, "input");
  expect((await press("ArrowLeft")).at === 2, "the slider does not step");
  expect((await use(click, ".track .lane")).at === 1, "a tap on the timeline does not go there");
  const middle = await use(click, ".chapters button:nth-child(4)");
  expect(new Set(middle.stages).size > 1, `in full swing all stages are ${middle.stages[0]}`);
  expect((await use(swipe)).at === middle.at + 1, "a swipe does not step");
  await use(focus, ".player");
  expect((await press(" ")).playing, "space does not play");
  expect(!(await press(" ")).playing, "space does not pause");
}

/** Look at the figure on paper, and on a phone smaller than the viewports. */
async function squeeze(page, fault) {
  await page.emulateMedia({ media: "print" });
  if (!(await page.evaluate(shown)).strip) fault("stepper: paper does not have the strip");
  await page.waitForFunction(themed, "light", PATIENT).catch(() => fault("paper is dark"));
  await page.emulateMedia({ media: "screen" });
  await page.waitForFunction(themed, "dark", PATIENT).catch(() => fault("paper changes the theme"));
  const size = page.viewportSize();
  await page.setViewportSize({ ...size, width: 320 });
  const wide = await page.locator(".stepper").evaluate((box) => box.scrollWidth > box.clientWidth);
  if (wide) fault("stepper: it is wider than a small phone");
  await page.setViewportSize(size);
  await page.evaluate(settled);
}

/** Runs in the page: whether it has this theme; it learns of paper with the next frame. */
function themed(theme) {
  return document.documentElement.dataset.theme === theme;
}

/** Runs in the page: give the focus to a part of the figure. */
function focus([part]) {
  document.querySelector(`.stepper ${part}`).focus();
}

/** Runs in the page: click on a part of the figure, at its left end. */
function click([part]) {
  const element = document.querySelector(`.stepper ${part}`);
  const { left, top } = element.getBoundingClientRect();
  element.dispatchEvent(new MouseEvent("click", { clientX: left + 1, clientY: top + 1, bubbles: true }));
}

/** Runs in the page: a finger that moves over the ring to the left. */
function swipe() {
  const ring = document.querySelector(".stepper .swipe");
  const at = (type, clientX) => new PointerEvent(type, { clientX, bubbles: true });
  ring.dispatchEvent(at("pointerdown", 200));
  ring.dispatchEvent(at("pointerup", 120));
}

/** Runs in the page: what the figure shows. */
function shown() {
  const part = (selector) => [...document.querySelectorAll(`.stepper .player ${selector}`)];
  const text = (selector) => part(selector).map((element) => element.textContent).join(" ");
  const [, at, steps] = text(".count").match(/step (\d+) of (\d+)/).map(Number);
  const box = part("pre")[0].getBoundingClientRect();
  const inside = ({ top, bottom }) => top >= box.top - 1 && bottom <= box.bottom + 1;
  return {
    at,
    steps,
    strip: document.querySelector(".stepper .strip").checkVisibility(),
    story: text(".story p"),
    stages: part(".stage .state").map((state) => state.textContent),
    numbers: text(".barriers td"),
    line: !box.height || part(".line.at").some((line) => inside(line.getBoundingClientRect())),
    playing: part(".pause").some((bar) => getComputedStyle(bar).display !== "none"),
  };
}

/** Runs in the page: open everything that is folded, since a reader may. */
function unfold() {
  for (const details of document.querySelectorAll("main details")) details.open = true;
}

/** Runs in the page: of the words of code that look the same, in the same place of the same box, leave
    one as an element, the others as plain text. Code is thousands of words in a dozen colours, and
    axe looks at elements. Words in links stay: a link has a colour of its own. */
function thin() {
  const seen = new Set();
  const again = [];
  for (const word of document.querySelectorAll("main pre span:not(:has(*), a *)")) {
    if (!/^[a-z]{1,2}\d?$/.test(word.className)) continue; // Pygments' names, which give no more than colour and weight
    const { color, fontWeight } = getComputedStyle(word);
    const look = [color, fontWeight];
    for (let box = word; box.tagName !== "MAIN"; box = box.parentElement) {
      look.push(box.tagName, box.className, box.getAttribute("style"));
    }
    if (seen.has(look.join())) again.push(word);
    seen.add(look.join());
  }
  // After all have been read: a style that is asked for between two changes is computed anew.
  for (const word of again) word.replaceWith(word.textContent);
  for (const code of document.querySelectorAll("main pre")) code.normalize();
}

/** Runs in the page: wait until its scripts have seen the new width; the theme's wait for 300 ms. */
async function settled() {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  await new Promise((done) => setTimeout(done, 400));
}

/** Runs in the page: return what breaks these rules of axe. Where a text has passed, the contrast of
    others that look like it is not computed again. */
async function ask(rules) {
  const check = globalThis.axe._audit.checks["color-contrast"];
  const evaluate = (check.ofAxe ??= check.evaluate);
  const grounds = new Map();
  const passed = new Set();
  const ground = (element) => {
    if (element && !grounds.has(element)) {
      const style = getComputedStyle(element);
      const own = [style.backgroundColor, style.backgroundImage, style.opacity, style.filter].join();
      // What is placed freely may stand on anything.
      const free = !["static", "relative"].includes(style.position) && `#${grounds.size}`;
      const clear = own === "rgba(0, 0, 0, 0),none,1,none" && !free;
      grounds.set(element, ground(element.parentElement) + (clear ? "" : `${free} ${own};`));
    }
    return grounds.get(element) ?? "";
  };
  check.evaluate = function (element, ...rest) {
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const look = [ground(element), color, fontSize, fontWeight].join();
    const result = passed.has(look) || evaluate.call(this, element, ...rest);
    if (result) passed.add(look);
    return result;
  };
  return (await globalThis.axe.run({ resultTypes: ["violations"], ...rules })).violations;
}

/** Runs in the page: sideways scroll, theme, figures, code. Returns what is wrong. */
function inspect(scheme) {
  const found = [];
  const expect = (condition, complaint) => condition || found.push(complaint);
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  const root = document.documentElement;
  expect(root.scrollWidth <= root.clientWidth, `scrolls sideways: ${root.scrollWidth} > ${root.clientWidth}`);
  expect(root.dataset.theme === scheme, `its theme is ${root.dataset.theme}`);
  const stuck = (box) => box.scrollWidth > box.clientWidth && box.tabIndex !== 0;
  const code = [...document.querySelectorAll("main pre")].filter(shown);
  expect(!code.some(stuck), "the keyboard cannot scroll code that is wider than its box");
  const charts = [...document.querySelectorAll(".chart")];
  for (const chart of charts) {
    const images = [...chart.querySelectorAll("img")].filter(shown);
    expect(images.length === 1, `a chart shows ${images.length} images, not 1`);
    expect(images.every((image) => image.naturalWidth > 0), "a chart's image is broken");
    expect(images.every((image) => image.alt), "a chart's image has no alternative text");
    expect([...chart.querySelectorAll(".badge")].some(shown), "a chart has no badge");
  }
  if (/matmul-hopper\/v\d/.test(location.pathname)) {
    const kernels = code.filter((block) => block.closest("div.highlight-python"));
    expect(kernels.some((block) => block.textContent.includes("def __call__")), "the kernel is not shown");
    expect(charts.length > 0, "there is no chart");
  }
  return found;
}

const all = await readdir(site, { recursive: true });
const INDICES = /^_|^(genindex|py-modindex|search)\.html$/;
const written = all.filter((name) => name.endsWith(".html") && !INDICES.test(name)).sort();
const pages = named.length ? named : written;
if (options.shots) await mkdir(options.shots, { recursive: true });
/** Look at all pages in one theme; the two themes go on side by side. */
async function lookIn(scheme) {
  const context = await browser.newContext({ colorScheme: scheme });
  const page = await context.newPage();
  for (const path of pages) await look(page, path, scheme);
}

await Promise.all(Object.keys(SCHEMES).map(lookIn));
console.log(`${pages.length} pages, ${faults} faults`);
await browser.close();
stop();
process.exit(faults ? 1 : 0);

// SPDX-License-Identifier: Apache-2.0
// Look at the built site as a reader does: light and dark, wide and narrow. Prints one line a fault; exits 1 if there is one.
//   node tests/docs/browser.mjs SITE [--shots FOLDER] [PAGE ...]
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { mkdir, readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { gzipSync } from "node:zlib";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { shots: { type: "string" } },
});
const [site, ...named] = positionals;
const pages = named.length ? named : ["index.html", "tutorials/matmul-hopper/v3.html"];
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 390, height: 844 };
const PAGE_LIMIT = 250 * 1024;
const TYPES = {
  ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
  ".png": "image/png", ".woff2": "font/woff2", ".json": "application/json",
};
// The size that counts is that of text: HTML, CSS and scripts, without fonts, images and the search index.
const COUNTED = new Set([".html", ".css", ".js"]);

const sizes = new Map();
const server = createServer(async (request, response) => {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
  try {
    const data = await readFile(join(site, path));
    sizes.set(path, COUNTED.has(extname(path)) && !path.endsWith("searchindex.js") ? gzipSync(data).length : 0);
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" });
    response.end(data);
  } catch {
    response.writeHead(404);
    response.end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});

let faults = 0;
function fault(where, what) {
  faults += 1;
  console.log(`${where}: ${what}`);
}

/** Open a page in one appearance and report all that a reader would stumble over. */
async function look(path, scheme, viewport) {
  const where = `${path} ${scheme} ${viewport.width}px`;
  const context = await browser.newContext({ colorScheme: scheme, viewport });
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && fault(where, `console: ${message.text()}`));
  page.on("pageerror", (error) => fault(where, `script: ${error.message}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("data:")) fault(where, `asks another host: ${url}`);
  });
  sizes.clear();
  await page.goto(`${origin}/${path}`, { waitUntil: "networkidle" });
  const size = [...sizes.values()].reduce((a, b) => a + b, 0);
  if (size > PAGE_LIMIT) fault(where, `${size} bytes compressed, over ${PAGE_LIMIT}`);
  for (const found of await page.evaluate(inspect, scheme)) fault(where, found);
  await page.addScriptTag({ path: axe });
  for (const violation of (await page.evaluate(() => globalThis.axe.run())).violations) {
    for (const node of violation.nodes) fault(where, `axe ${violation.id}: ${node.html.slice(0, 160)}`);
  }
  if (options.shots) {
    await mkdir(options.shots, { recursive: true });
    const name = `${path.replaceAll("/", "-").replace(".html", "")}-${scheme}-${viewport.width}.png`;
    await page.screenshot({ path: join(options.shots, name), fullPage: true });
  }
  console.error(`${where}: ${Math.round(size / 1024)} KB of text`);
  await context.close();
}

/** Runs in the page: sideways scroll, theme, figures, code. */
function inspect(scheme) {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`scrolls sideways: ${root.scrollWidth} > ${root.clientWidth}`);
  if (root.dataset.theme !== scheme) found.push(`theme is ${root.dataset.theme}`);
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  for (const chart of document.querySelectorAll(".chart")) {
    const images = [...chart.querySelectorAll("img")].filter(shown);
    if (images.length !== 1) found.push(`a chart shows ${images.length} images, not 1`);
    if (images.some((image) => !image.complete || image.naturalWidth === 0)) found.push("a chart's image is broken");
    if (images.some((image) => !image.alt)) found.push("a chart's image has no alternative text");
    if (![...chart.querySelectorAll(".badge")].some(shown)) found.push("a chart has no badge");
  }
  if (location.pathname.includes("/tutorials/matmul-hopper/v")) {
    const code = [...document.querySelectorAll("div.highlight-python pre")].filter(shown);
    if (!code.some((block) => block.textContent.includes("thread_group"))) found.push("the kernel's code is not shown");
    if (!document.querySelector(".chart")) found.push("there is no chart");
  }
  return found;
}

for (const path of pages) {
  for (const scheme of ["light", "dark"]) {
    for (const viewport of [WIDE, NARROW]) await look(path, scheme, viewport);
  }
}
await browser.close();
server.close();
process.exit(faults ? 1 : 0);

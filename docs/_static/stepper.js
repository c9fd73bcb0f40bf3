// SPDX-License-Identifier: Apache-2.0
// Makes a player of each .stepper: what the page shows of a step comes from the build, as JSON.
"use strict";

const PAUSE_MS = 1800;

/** Give one figure its buttons, keys and gestures. */
function stepper(figure) {
  const data = JSON.parse(figure.querySelector(".data").textContent);
  const find = (selector) => figure.querySelector(selector);
  const all = (selector) => [...figure.querySelectorAll(selector)];
  const player = find(".player");
  const part = (selector) => [...player.querySelectorAll(selector)];
  const slider = find("input");
  const last = data.steps.length - 1;
  const lines = new Map(part("[data-line]").map((line) => [Number(line.dataset.line), line]));
  const code = new Map([...lines].map(([n, line]) => [n, line.textContent.replace(/^\d+\s*/, "").trim()]));
  const most = data.steps[0].barriers.map((_, i) => [1, 2].map((j) => Math.max(...data.steps.map((s) => s.barriers[i][j]))));
  let at = 0;
  let timer = 0;

  const paragraphs = (texts) => texts.map((text) => `<p>${text}</p>`).join("");
  const clamp = (step) => Math.max(0, Math.min(last, step));
  const moves = {
    first: () => go(0),
    back: () => go(at - 1),
    next: () => go(at + 1),
    last: () => go(last),
    play: () => (timer ? stop() : play()),
  };
  const keys = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last", " ": "play" };

  /** Show a step. */
  function show(step) {
    const scene = data.steps[step];
    const before = data.steps[Math.max(0, step - 1)];
    at = step;
    slider.value = step;
    const count = `step ${step + 1} of ${last + 1}, cycle ${scene.time}`;
    slider.setAttribute("aria-valuetext", count);
    find(".count").textContent = count;
    find(".story").innerHTML = paragraphs(scene.text);
    find(".head").style.left = `${(100 * scene.time) / data.cycles}%`;
    scene.stages.forEach(showStage);
    scene.places.forEach(showPointer);
    showCore(scene.product);
    showBarriers(scene.barriers, before.barriers);
    scene.staging.forEach((now, i) => showStaging(now, before.staging[i], i));
    scene.actors.forEach(showActor);
    showLines(scene.actors);
    const chapter = part("[data-step]").findLast((button) => button.dataset.step <= step);
    for (const button of part("[data-step]")) {
      if (button === chapter) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    for (const [name, end] of [["first", 0], ["back", 0], ["next", last], ["last", last]]) {
      player.querySelector(`[data-go="${name}"]`).setAttribute("aria-disabled", step === end);
    }
  }

  function showStage([state, tile, share], i) {
    const stage = part(".stage")[i];
    stage.setAttribute("class", `stage s-${state}`);
    stage.querySelector(".fill").setAttribute("stroke-dasharray", `${100 * share} 200`);
    stage.querySelector(".tile").textContent = tile === null ? "" : `tile ${tile}`;
    stage.querySelector(".state").textContent = data.words[state] ?? state;
    part(".barriers tbody small")[i].textContent = data.words[state] ?? state;
  }

  /** Turn a pointer to its stage, by the shorter way. */
  function showPointer(place, i) {
    const pointer = part(".ring .pointer")[i];
    pointer.classList.toggle("away", place === null);
    const now = Number(pointer.dataset.angle ?? 0);
    const turn = ((((place ?? 0) * 360) / data.steps[0].stages.length - now) % 360 + 540) % 360 - 180;
    pointer.dataset.angle = now + turn;
    pointer.style.transform = `rotate(${now + turn}deg)`;
  }

  function showBarriers(now, before) {
    const depth = now.length / data.kinds.length;
    const cells = part(".barriers tbody tr").map((row) => [...row.querySelectorAll("td")]);
    now.forEach((numbers, i) => {
      const shown = data.kinds[Math.floor(i / depth)].name === "full" ? 3 : 2;
      const begin = i < depth ? 0 : cells[0].length - shown;
      numbers.slice(0, shown).forEach((number, j) => {
        const cell = cells[i % depth][begin + j];
        cell.textContent = number;
        if (j) cell.style.setProperty("--part", `${(100 * number) / (most[i][j - 1] || 1)}%`);
        cell.classList.toggle("changed", number !== before[i][j]);
      });
    });
  }

  function showStaging(now, before, i) {
    const cells = part(".staging tbody tr")[i].querySelectorAll("td");
    now.forEach((value, j) => {
      cells[j].textContent = value === null ? "–" : (data.stagings[value] ?? value);
      cells[j].classList.toggle("changed", value !== before[j]);
    });
  }

  function showActor([mood, text, line], i) {
    const row = part(".actors li")[i];
    row.className = `m-${mood}`;
    row.querySelector(".mood path").setAttribute("d", data.moods[mood]);
    row.querySelector(".what").innerHTML = text;
    row.querySelector(".at").textContent = code.get(line) ?? "";
  }

  function showCore(product) {
    part(".core")[0].classList.toggle("busy", product !== null);
    part(".core .tile")[0].textContent = product === null ? "idle" : `tile ${product}`;
  }

  /** Mark the lines that ran, and where each role is; show the one that ran last. */
  function showLines(actors) {
    for (const line of part(".line")) line.classList.remove("ran", "at");
    for (const tags of part(".tags")) tags.replaceChildren();
    for (const number of actors.flatMap(([, , , ran]) => ran)) lines.get(number).classList.add("ran");
    actors.forEach(([, , number], i) => {
      if (!number) return;
      const tag = document.createElement("b");
      tag.textContent = part(".who")[i].firstChild.textContent;
      lines.get(number).classList.add("at");
      lines.get(number).querySelector(".tags").append(tag);
    });
    const acting = actors.find(([, , , ran]) => ran.length) ?? actors.find(([, , number]) => number);
    if (acting) reveal(lines.get(acting[2] ?? acting[3][0]));
  }

  /** Scroll the source, and nothing else, to a line that cannot be seen. */
  function reveal(line) {
    const box = line.closest("pre").getBoundingClientRect();
    const { top, bottom } = line.getBoundingClientRect();
    if (top < box.top || bottom > box.bottom) line.closest("pre").scrollTop += top - box.top - box.height / 2;
  }

  function go(step) {
    stop();
    show(clamp(step));
  }

  function play() {
    if (at === last) show(0);
    player.classList.add("playing");
    find('[data-go="play"]').setAttribute("aria-label", "Pause");
    find(".story").setAttribute("aria-live", "off");
    timer = setInterval(() => (at === last ? stop() : show(at + 1)), PAUSE_MS);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    player.classList.remove("playing");
    find('[data-go="play"]').setAttribute("aria-label", "Play");
    find(".story").setAttribute("aria-live", "polite");
  }

  player.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.go) moves[button.dataset.go]();
    else if (button) go(Number(button.dataset.step));
  });
  slider.addEventListener("input", () => go(Number(slider.value)));
  player.addEventListener("keydown", (event) => {
    const own = event.target.closest("pre, summary, input") || (event.key === " " && event.target !== player);
    if (!keys[event.key] || own || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[keys[event.key]]();
  });

  /** A tap on the timeline goes to the step of that time. */
  for (const lane of all(".track .lane")) {
    lane.addEventListener("click", (event) => {
      const { left, width } = lane.getBoundingClientRect();
      const time = (data.cycles * (event.clientX - left)) / width;
      go(Math.max(0, data.steps.findLastIndex((step) => step.time <= time)));
    });
  }

  /** A swipe over the ring goes one step on or back. */
  const ring = find(".swipe");
  let from = null;
  ring.addEventListener("pointerdown", (event) => (from = event.clientX));
  ring.addEventListener("pointerup", (event) => {
    const way = event.clientX - (from ?? event.clientX);
    from = null;
    if (Math.abs(way) > 30) go(at + (way < 0 ? 1 : -1));
  });

  /** Put the playhead over the lanes, and keep the text's box as high as nearly all texts need. */
  function fit() {
    find(".head-area").style.left = `${find(".track .lane").offsetLeft}px`;
    const story = find(".story");
    const probe = story.cloneNode();
    probe.removeAttribute("aria-live");
    probe.style.cssText = "visibility: hidden; min-height: 0";
    story.after(probe);
    const heights = data.steps.map(({ text }) => {
      probe.innerHTML = paragraphs(text);
      return probe.offsetHeight;
    });
    probe.remove();
    heights.sort((a, b) => a - b);
    story.style.minHeight = `${heights[Math.floor(0.9 * last)]}px`;
  }

  find(".strip").hidden = true;
  player.hidden = find(".head").hidden = false;
  new ResizeObserver(fit).observe(figure);
  if (player.clientWidth < 600) find("details").open = false;
  figure.classList.add("playable");
  show(0);
}

for (const figure of document.querySelectorAll(".stepper")) stepper(figure);

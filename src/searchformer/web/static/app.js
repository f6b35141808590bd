// The page: puts the parts together, and keeps what is shown in the address.
import { ask, get, post, postForText } from "./api.js";
import { Duel, element } from "./duel.js";
import { Editor, keyOf, TOOLS } from "./editor.js";
import { decodeTask, encodeTask, isSokoban, sizeOf } from "./grid.js";
import { Inside } from "./inside.js";
import { Game } from "./play.js";
import { isTaken, timelineKeys } from "./player.js";
import { RunBrowser } from "./runs.js";
import { Samples } from "./samples.js";

const $ = (selector) => document.querySelector(selector);
const SIZES = [4, 5, 6, 8, 10, 15, 20, 30];
const DEFAULTS = { algorithm: "astar", ties: false, seed: 0, model: "", temperature: 1, sample: 0, tab: "tokens", step: 0,
  samples: 0, attention: "prompt", head: "", moves: "" };

// `stored`: the run and task whose answers are shown, and which of them on each side; null where a side is computed
const state = { ...DEFAULTS, task: null, stored: null };
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let models = [], wanted = null, stopAsking = () => {}, tool = "wall", askedFor = null;

// --- the stage

const duel = new Duel($("#stage"), { onChange: (count) => { remember(); tellResult(); runs.seek(count); if (state.tab === "inside") lookInside(); } });
duel.keepEnd = true;
$("#panel-tokens").append(duel.streams);
duel.cards.left.head.append($("#left-controls"));
duel.cards.right.head.append($("#right-controls"));
duel.onToken = (side, number, token) => { if (state.tab === "inside" && side === "right" && token !== null) inside.look(token); };
const nameOf = (side) => duel.cards[side].name.textContent;
const names = (side, name) => { duel.setName(side, name); showHeadline(); };
duel.setName("left", "A*");
duel.setName("right", "Transformer");

function showHeadline() {
  const other = nameOf("right") === "Transformer" ? "a Transformer" : nameOf("right");
  $("#headline").textContent = `${nameOf("left")} and ${other} search the same ${isSokoban(state.task) ? "Sokoban level" : "maze"}`;
}

function toast(text) {
  const box = $("#toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.hidden = true; }, 4000);
}

/** In one sentence: who needed less. */
function tellResult() {
  const { left, right } = duel.searches, other = called("right"), over = duel.player.count >= duel.player.total && duel.player.total > 0;
  const box = $("#result");
  if (!over || !left?.verdict || !right?.verdict) { box.textContent = progressText(left, right); return; }
  if (right.verdict !== "optimal" || left.verdict !== "optimal") { box.textContent = withoutWinner(left, right); return; }
  const share = Math.round(100 * (1 - right.trace_tokens / left.trace_tokens));
  const compared = right.trace_tokens === 0 ? "without any search" : share > 0 ? `with ${share}% less search` : share < 0 ? `with ${-share}% more search` : "with as much search";
  box.replaceChildren("Both found a shortest plan; ", element("b", "", `${other} ${compared}`), element("span", "aside", ` (${right.trace_tokens} tokens against ${left.trace_tokens})`),
    right.sound === false ? ", though not every step of its search is true." : ".");
}

/** The end of searches that cannot be compared: a plan is wrong, or longer than it need be, or there is none. */
function withoutWinner(left, right) {
  if (left.verdict === "unsolvable") return "There is no way to the goal.";
  const [side, search] = right.verdict === "optimal" ? ["left", left] : ["right", right];
  if (search.verdict === "invalid") return `The answer of ${called(side)} is wrong: its plan does not solve the task.`;
  const more = search.plan_length - search.optimal_length;
  return `The plan of ${called(side)} solves the task with ${more} ${more === 1 ? "move" : "moves"} more than needed.`;
}

/** The name of a side inside a sentence. */
function called(side) {
  const name = nameOf(side);
  return name === "Transformer" ? "the Transformer" : name;
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** What there is to see, before anything has moved. */
function promise(left, right) {
  if (!left && !right) return ["left", "right"].some((side) => duel.cards[side].waiting) ? "Both are at work…" : "";
  if (left?.verdict !== "optimal" || right?.verdict !== "optimal") return "Press play: both make one step at a time.";
  return `Press play: ${called("left")} writes ${left.trace_tokens} tokens of search, ${called("right")} ${right.trace_tokens}.`;
}

function progressText(left, right) {
  const { count } = duel.player;
  if (!count) return promise(left, right);
  const planning = [left, right].map((search) => search?.steps[Math.min(count, search.steps.length) - 1]?.kind === "plan");
  if (!right && planning[0]) return `${sentence(called("left"))} has found its plan.`;
  if (planning[1] && !planning[0]) return `${sentence(called("right"))} has searched enough and writes its plan; ${called("left")} is still searching.`;
  if (planning[0] && !planning[1]) return `${sentence(called("left"))} has found its plan; ${called("right")} is still searching.`;
  return planning[0] ? "Both write their plans." : "Both search: a closed cell was visited, the frontier waits.";
}

// --- searches

let latestSearch = 0;

async function runLeft() {
  const number = ++latestSearch, asked = leftRequest();
  if (state.stored) state.stored.left = null;
  try {
    const found = await post("/api/search", asked);
    if (number !== latestSearch) return;
    names("left", found.who);
    duel.setSearch("left", found);
  } catch (error) {
    if (number === latestSearch) duel.setSearch("left", null, { note: error.message });
  }
  tellResult();
}

const leftRequest = () => ({ task: state.task, algorithm: state.algorithm, deterministic: state.ties, seed: state.seed });

function askRight() {
  stopAsking();
  if (state.stored) state.stored.right = null;
  const live = { who: "Transformer", tokens: [], steps: [], id: Symbol("answer") };
  const number = (askedFor = Symbol("question"));
  names("right", "Transformer");
  duel.setSearch("right", null, { waiting: "thinking…" });
  const current = () => number === askedFor;
  stopAsking = ask({ task: state.task, model: state.model || null, temperature: state.temperature, first: state.sample }, {
    begin: ({ model, notes }) => { if (current()) { showModel(model); live.note = notes.join(" "); } },
    queue: ({ place }) => { if (current()) duel.setSearch("right", null, { waiting: `place ${place} in the queue` }); },
    tokens: ({ answers }) => {
      if (!current()) return;
      for (const { tokens, steps } of Object.values(answers)) { live.tokens.push(...tokens); live.steps.push(...steps); }
      duel.setSearch("right", { ...live }, { note: live.note });
    },
    answer: ({ search, finished }) => { if (current()) { duel.setSearch("right", { ...search, finished, judged: true }, { note: live.note }); tellResult(); if (state.tab === "inside") lookInside(); } },
    error: (reason) => { if (current()) duel.setSearch("right", null, { note: reason }); },
  });
}

/** Which model was asked where none was chosen. */
let bestFit = "";
function showModel(name) {
  if (state.model) return;
  bestFit = name;
  $("[name=model]").options[0].textContent = `best fit: ${name}`;
}

/** A new task. While something is being dragged (`done` false) only A* is asked again. */
function setTask(task, { done = true, keepPlace = false } = {}) {
  state.task = task;
  runs.leave();
  state.stored = null;
  document.body.dataset.domain = isSokoban(task) ? "sokoban" : "maze";
  showDomain();
  if (done && !keepPlace) duel.setTask(task);
  else { duel.task = task; duel.setSearch("right", null, { waiting: "asked when you let go" }); stopAsking(); askedFor = null; }
  samples.clear();
  state.moves = "";
  if (done && state.tab === "play") game.begin(task);
  if (!keepPlace) duel.player.seek(0);
  remember();
}

function compute() { return Promise.all([runLeft(), askRight()]); }

/** Edits: A* follows at once, one request at a time; the model is asked when the hand rests. */
let busyEditing = false, editedAgain = false;
async function edited(task, done) {
  const wasAtEnd = duel.player.count > 0 && duel.player.count >= duel.player.total;
  if (wasAtEnd) edited.showEnd = true;
  edited.atRest = done;
  setTask(task, { done, keepPlace: true });
  for (const side of ["left", "right"]) duel.cards[side].board.show({ task });
  if (done) askRight();
  if (busyEditing) { editedAgain = true; return; }
  busyEditing = true;
  do {
    editedAgain = false;
    await runLeft();
    if (edited.showEnd) duel.player.seek(duel.player.total);
  } while (editedAgain);
  busyEditing = false;
  if (edited.atRest) edited.showEnd = false;
}

for (const side of ["left", "right"]) {
  new Editor(duel.cards[side].board, { current: () => state.task, change: edited, tool: () => tool });
}

// --- the address

function remember() {
  if (!state.task) return;
  state.step = duel.player.count;
  clearTimeout(remember.timer);
  remember.timer = setTimeout(() => history.replaceState(null, "", linkOf(state)), 150);
}

export function linkOf(shown) {
  const words = new URLSearchParams({ task: encodeTask(shown.task) });
  for (const [name, value] of Object.entries(DEFAULTS)) if (shown[name] !== value) words.set(name, shown[name]);
  if (shown.stored) {
    const { run, id, left, right } = shown.stored;
    words.set("run", run);
    words.set("id", id);
    for (const [side, place] of Object.entries({ left, right })) if (place) words.set(side, `${place.sample}:${place.evaluation}`);
  }
  return `#${words}`;
}

/** The stored answers that a link names, or null. */
function storedIn(words) {
  if (!words.has("run")) return null;
  const place = (side) => {
    const [, sample, evaluation] = /^(\d+):(.+)$/.exec(words.get(side) ?? "") ?? [];
    return evaluation ? { sample: Number(sample), evaluation } : null;
  };
  return { run: words.get("run"), id: words.get("id") ?? "", left: place("left"), right: place("right") };
}

function readLink(hash) {
  const words = new URLSearchParams(hash.slice(1));
  if (!words.has("task")) return false;
  Object.assign(state, DEFAULTS);
  for (const [name, value] of Object.entries(DEFAULTS)) {
    if (!words.has(name)) continue;
    const text = words.get(name);
    state[name] = typeof value === "number" ? Number(text) || 0 : typeof value === "boolean" ? text === "true" : text;
  }
  state.task = decodeTask(words.get("task"));
  wanted = storedIn(words);
  return true;
}

// --- controls

function showDomain() {
  const sokoban = isSokoban(state.task);
  for (const button of document.querySelectorAll("[data-domain]")) button.setAttribute("aria-pressed", String((button.dataset.domain === "sokoban") === sokoban));
  for (const box of document.querySelectorAll(".maze-only")) box.hidden = sokoban;
  for (const box of document.querySelectorAll(".sokoban-only")) box.hidden = !sokoban;
  showHeadline();
  if (!sokoban) fillSizes(sizeOf(state.task));
  fillModels();
}

/** The sizes of mazes: round ones, those of the models, and the one that is shown. */
function fillSizes({ width, height }) {
  const select = $("[name=size]"), sides = models.filter((model) => model.domain === "maze").map((model) => model.width);
  if (width === height) sides.push(width);
  const choices = [...new Set([...SIZES, ...sides.filter(Boolean)])].sort((a, b) => a - b);
  select.replaceChildren(...choices.map((side) => new Option(`${side} × ${side}`, side)));
  if (width !== height) select.add(new Option(`${width} × ${height}`, "", true, true), 0);
  else select.value = String(width);
}

/** Random levels have as many boxes as the models know, until someone chooses. */
function fillBoxes() {
  const most = Math.max(0, ...models.filter((model) => model.domain === "sokoban").map((model) => model.boxes ?? 0));
  const select = $("[name=boxes]");
  if (!select.dataset.chosen && [...select.options].some((option) => Number(option.value) === most)) select.value = String(most);
}

function fillModels() {
  const select = $("[name=model]"), domain = isSokoban(state.task) ? "sokoban" : "maze";
  const fitting = models.filter((model) => model.domain === domain);
  fillBoxes();
  const key = domain + fitting.length;
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(new Option(fitting.some((model) => model.name === bestFit) ? `best fit: ${bestFit}` : "best fit", ""), ...fitting.map((model) => new Option(model.name.includes(`${model.width}x${model.height}`) ? model.name : `${model.name} (${model.width}×${model.height})`, model.name)));
  }
  if (state.model && !fitting.some((model) => model.name === state.model)) state.model = "";
  select.value = state.model;
}

async function newTask(domain = isSokoban(state.task) ? "sokoban" : "maze") {
  const size = Number($("[name=size]").value) || null, boxes = Number($("[name=boxes]").value);
  const kind = domain === "sokoban" ? { boxes } : { kind: $("[name=kind]").value, width: size, height: size };
  try {
    setTask(await post("/api/task", { domain, ...kind, seed: Math.floor(Math.random() * 2 ** 31) }));
    state.sample = 0;
    compute();
  } catch (error) { toast(error.message); }
}

function again(side) {
  if (side === "left") { state.seed = (state.seed + 1) % 1000; runLeft(); } else { state.sample = (state.sample + 1) % 1000; askRight(); }
  remember();
}

for (const button of document.querySelectorAll("[data-do=new]")) button.onclick = () => newTask();
for (const button of document.querySelectorAll("[data-domain]")) {
  button.onclick = async () => {
    if (button.dataset.domain === "maze") return newTask("maze");
    await fillGallery();
    openLevel(0);
  };
}
$("[name=size]").onchange = $("[name=kind]").onchange = () => newTask();
$("[name=boxes]").onchange = (event) => { event.target.dataset.chosen = "true"; newTask(); };
$("[name=algorithm]").onchange = (event) => { state.algorithm = event.target.value; runLeft(); remember(); };
$("[name=ties]").onchange = (event) => { state.ties = event.target.checked; runLeft(); remember(); };
$("[name=model]").onchange = (event) => { state.model = event.target.value; samples.clear(); askRight(); remember(); };
$("[name=temperature]").onchange = (event) => {
  state.temperature = Math.min(5, Math.max(0, Number(event.target.value) || 0));
  event.target.value = state.temperature;
  samples.clear();
  askRight();
  remember();
};
$("[data-do=again-left]").onclick = () => again("left");
$("[data-do=again-right]").onclick = () => again("right");

// --- Sokoban: gallery, paste, tools

let levels = [];

async function fillGallery() {
  if (!levels.length) levels = await get("/api/gallery");
  showLevels();
}

function showLevels() {
  $("[name=gallery]").replaceChildren(...levels.map((level, number) => new Option(level.title, number)));
}

function openLevel(number) {
  $("[name=gallery]").value = String(number);
  setTask({ level: levels[number].level });
  compute();
}

$("[name=gallery]").onchange = (event) => openLevel(Number(event.target.value));
$("[data-do=paste]").onclick = () => { $("#paste .note").textContent = ""; $("#paste").showModal(); };
$("[data-do=close-paste]").onclick = () => $("#paste").close();
$("#paste [name=file]").onchange = async (event) => { if (event.target.files[0]) $("#paste [name=text]").value = await event.target.files[0].text(); };
$("[data-do=read-levels]").onclick = async () => {
  try {
    levels = await post("/api/levels", { text: $("#paste [name=text]").value });
    showLevels();
    $("#paste").close();
    openLevel(0);
    toast(levels.length === 1 ? "One level." : `${levels.length} levels.`);
  } catch (error) { $("#paste .note").textContent = error.message; }
};
for (const [name, label] of Object.entries(TOOLS)) {
  const button = element("button", "", label);
  Object.assign(button, { type: "button", onclick: () => chooseTool(name) });
  button.dataset.tool = name;
  $("#drawing-tools").append(button);
}
function chooseTool(name) {
  tool = name;
  for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === name));
}
chooseTool("wall");

// --- tabs

const samples = new Samples($("#panel-samples"), {
  state: () => ({ task: state.task, model: state.model || null, temperature: state.temperature }),
  watch: (search) => {
    stopAsking();
    askedFor = null;
    state.sample = search.sample;
    if (state.stored) state.stored.right = null;
    names("right", "Transformer");
    duel.setSearch("right", { ...search, finished: search.reason !== "no eos", judged: true });
    duel.player.seek(0);
    if (calm.matches) duel.player.seek(duel.player.total); else duel.player.play();
    remember();
  },
  onAsk: (count) => { state.samples = count; remember(); },
});
const inside = new Inside($("#panel-inside"), {
  state: () => ({ task: state.task, search: duel.searches.right, ...whoAnswered() }),
  show: (looks) => duel.cards.right.board.show({ looks }),
  onChoice: (choice) => { Object.assign(state, choice); remember(); },
});
const game = new Game($("#panel-play"), { onMove: (moves) => { state.moves = moves; remember(); } });
const runs = new RunBrowser($("#panel-runs"), {
  showTask: (task, astar, place) => {
    setTask(task);
    stopAsking();
    askedFor = null;
    latestSearch++;
    setAlgorithm({ algorithm: "astar", ties: false, seed: 0 });
    state.stored = { ...place, left: null, right: null };
    names("left", astar.who);
    duel.setSearch("left", astar);
    duel.setSearch("right", null, { waiting: "opening the stored answers…" });
    remember();
  },
  showSearch: (side, search, about) => {
    if (side === "right") { stopAsking(); askedFor = null; } else latestSearch++;
    state.stored[side] = about.evaluation ? about : null;
    names(side, about.label);
    duel.setSearch(side, { ...search, judged: true });
    duel.player.seek(0);
  },
  lineUp: (searches) => { duel.others = searches; duel.setLength(); },
  problem: toast,
});

/** The model to look into: a stored answer's own, or the one that is asked. */
function whoAnswered() {
  const place = state.stored?.right;
  if (place && !place.model) return { problem: "The model that gave this stored answer is not in the run's directory." };
  return { model: place ? place.model : state.model || null };
}

function setAlgorithm(chosen) {
  Object.assign(state, chosen);
  $("[name=algorithm]").value = state.algorithm;
  $("[name=ties]").checked = state.ties;
}

function lookInside() {
  const search = duel.searches.right;
  const next = search?.steps[duel.player.count];
  inside.look(next ? next.at + 1 : search?.tokens.length ?? 0);  // the keyword says little: where it goes on says more
}

function openTab(name, { focus = false } = {}) {
  const before = state.tab;
  state.tab = document.getElementById(`tab-${name}`) ? name : "tokens";
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${state.tab}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) tab.focus();
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (before === "inside" && state.tab !== "inside") inside.hide();
  if (state.tab === "inside") lookInside();
  if (state.tab === "play") { game.begin(state.task, state.moves); game.canvas.focus({ preventScroll: true }); $("#panel-play").scrollIntoView({ block: "nearest" }); }
  if (state.tab === "runs" && !wanted) runs.load();
  remember();
}

const tabs = [...document.querySelectorAll("[role=tab]")];
tabs.forEach((tab, at) => {
  tab.onclick = () => openTab(tab.id.slice(4));
  tab.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    openTab(tabs[(at + step + tabs.length) % tabs.length].id.slice(4), { focus: true });
  };
});

// --- the page's own buttons and keys

$("[data-do=share]").onclick = async () => {
  const link = location.origin + location.pathname + linkOf({ ...state, step: duel.player.count });
  history.replaceState(null, "", link);
  try { await navigator.clipboard.writeText(link); toast("Link copied."); } catch { toast("The link is in the address bar."); }
};
$("[data-do=download]").onclick = async () => {
  const answer = duel.searches.right;
  if (!answer?.verdict) return toast("Wait for the model's answer first.");
  try {
    const place = (side) => {
      const { run, id } = state.stored ?? {}, at = state.stored?.[side];
      return at ? { run, task_id: id, evaluation: at.evaluation, sample: at.sample } : null;
    };
    const places = { left: place("left"), right: place("right") };
    const asked = places.right ? {} : { tokens: answer.tokens, finished: answer.reason !== "no eos", model: state.model || null };
    const page = await postForText("/api/replay", { ...leftRequest(), ...asked, ...places });
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    link.download = "searchformer-replay.html";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) { toast(error.message); }
};

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const each of [duel.cards.left.board, duel.cards.right.board, game.board]) each.draw();
}
const preferred = matchMedia("(prefers-color-scheme: dark)");
preferred.onchange = () => { if (!localStorage.getItem("theme")) setTheme(preferred.matches ? "dark" : "light"); };
$("[data-do=theme]").onclick = () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
};
$("[data-do=help]").onclick = () => $("#help").showModal();

document.addEventListener("keydown", (event) => {
  if (isTaken(event) || document.querySelector("dialog[open]")) return;
  const keys = { ...timelineKeys(duel.player), n: () => newTask(), a: () => again("right"), t: () => $("[data-do=theme]").click(), "?": () => $("#help").showModal() };
  tabs.forEach((tab, at) => { keys[String(at + 1)] = () => openTab(tab.id.slice(4), { focus: true }); });
  const action = keys[keyOf(event)];
  if (action) { event.preventDefault(); action(); }
});

// --- begin: a task and both searches are there before any model is asked

async function openLink() {
  const { step, tab, algorithm, ties, seed, moves, attention, head } = state, count = state.samples, stored = wanted;
  setAlgorithm({ algorithm, ties, seed });
  $("[name=temperature]").value = state.temperature;
  setTask(state.task);
  state.moves = moves;
  inside.choose({ attention, head });
  openTab(tab);
  wanted = null;
  if (!stored) await compute();
  else if (await runs.load(stored)) {
    setAlgorithm({ algorithm, ties, seed });
    await Promise.all([stored.left ? null : runLeft(), stored.right ? null : askRight()]);
  } else {  // the run is not here: better nothing than another answer
    await runLeft();
    state.stored = stored;
    duel.setSearch("right", null, { note: runs.note.textContent });
  }
  if (step) duel.player.seek(step);
  state.step = step;
  if (tab === "inside") lookInside();
  if (count) { samples.setCount(count); samples.run(); }
}

async function begin() {
  const knownModels = get("/api/models").then((found) => { models = found; if (state.task) showDomain(); }).catch((error) => toast(error.message));
  try {
    if (readLink(location.hash)) { await knownModels; await openLink(); return; }
  } catch (error) { toast(error.message); }
  try {
    const { task, seed, left, right } = await get("/api/example");
    setTask(task);
    Object.assign(state, { seed, sample: right?.sample ?? 0 });
    duel.setSearch("left", left);
    if (right) { duel.setSearch("right", { ...right, judged: true }); showModel(right.who); } else askRight();
    tellResult();
  } catch (error) { toast(error.message); }
}
window.addEventListener("hashchange", async () => {
  try { if (readLink(location.hash)) await openLink(); } catch (error) { toast(error.message); }
});
document.body.dataset.ready = "true";
begin();

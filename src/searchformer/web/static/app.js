// The page: puts the parts together, and keeps what is shown in the address.
import { ask, get, post, postForText } from "./api.js";
import { Duel, element } from "./duel.js";
import { Editor, TOOLS } from "./editor.js";
import { decodeTask, encodeTask, isSokoban, sizeOf } from "./grid.js";
import { Inside } from "./inside.js";
import { Game } from "./play.js";
import { RunBrowser } from "./runs.js";
import { Samples } from "./samples.js";

const $ = (selector) => document.querySelector(selector);
const SIZES = [4, 5, 6, 8, 10, 15, 20, 30];
const DEFAULTS = { algorithm: "astar", ties: false, seed: 0, model: "", temperature: 1, sample: 0, tab: "tokens", step: 0 };

const state = { ...DEFAULTS, task: null, stored: false };
let models = [], stopAsking = () => {}, tool = "wall", askedFor = null;

// --- the stage

const duel = new Duel($("#stage"), { onChange: () => { remember(); tellResult(); if (state.tab === "inside") lookInside(); } });
duel.keepEnd = true;
$("#panel-tokens").append(duel.streams);
duel.cards.left.head.append($("#left-controls"));
duel.cards.right.head.append($("#right-controls"));
duel.onToken = (side, number, token) => { if (state.tab === "inside" && side === "right" && token !== null) inside.look(token); };
const names = (side, name) => { duel.cards[side].name.textContent = duel.cards[side].name.title = name; };
names("left", "A*");
names("right", "Transformer");

function toast(text) {
  const box = $("#toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.hidden = true; }, 4000);
}

/** In one sentence: who needed less. */
function tellResult() {
  const { left, right } = duel.searches, over = duel.player.count >= duel.player.total && duel.player.total > 0;
  const box = $("#result");
  if (!over || !left?.verdict || !right?.verdict) { box.textContent = progressText(left, right); return; }
  if (right.verdict !== "optimal" || left.verdict !== "optimal") { box.textContent = right.verdict === "invalid" ? "This answer of the model is wrong: its plan does not solve the task. Ask again." : ""; return; }
  const share = Math.round(100 * (1 - right.trace_tokens / left.trace_tokens));
  const compared = right.trace_tokens === 0 ? "without any search" : share > 0 ? `with ${share}% less search` : share < 0 ? `with ${-share}% more search` : "with as much search";
  box.replaceChildren("Both found a shortest plan; ", element("b", "", `the Transformer ${compared}`), ` (${right.trace_tokens} tokens against ${left.trace_tokens})`,
    right.sound === false ? ", though not every step of its search is true." : ".");
}

function progressText(left, right) {
  const { count } = duel.player;
  if (!count) return "Press play: both make one step at a time.";
  const planning = [left, right].map((search) => search?.steps[Math.min(count, search.steps.length) - 1]?.kind === "plan");
  if (planning[1] && !planning[0]) return "The Transformer has searched enough and writes its plan; A* is still searching.";
  if (planning[0] && !planning[1]) return "A* has found its plan; the Transformer is still searching.";
  return planning[0] ? "Both write their plans." : "Both search: a closed cell was visited, the frontier waits.";
}

// --- searches

let latestSearch = 0;

async function runLeft() {
  const number = ++latestSearch, asked = leftRequest();
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
  const live = { who: "Transformer", tokens: [], steps: [], id: Symbol("answer") };
  const number = (askedFor = Symbol("question"));
  names("right", "Transformer");
  duel.setSearch("right", null, { note: "thinking…" });
  const current = () => number === askedFor;
  stopAsking = ask({ task: state.task, model: state.model || null, temperature: state.temperature, first: state.sample }, {
    begin: ({ model, notes }) => { if (current()) { showModel(model); live.note = notes.join(" "); } },
    queue: ({ place }) => { if (current()) duel.setSearch("right", null, { note: `place ${place} in the queue` }); },
    tokens: ({ answers }) => {
      if (!current()) return;
      for (const { tokens, steps } of Object.values(answers)) { live.tokens.push(...tokens); live.steps.push(...steps); }
      duel.setSearch("right", { ...live }, { note: live.note, streaming: true });
    },
    answer: ({ search, finished }) => { if (current()) { duel.setSearch("right", { ...search, finished, judged: true }, { note: live.note }); tellResult(); if (state.tab === "inside") lookInside(); } },
    error: (reason) => { if (current()) duel.setSearch("right", null, { note: reason }); },
  });
}

function showModel(name) {
  if (state.model) return;
  $("[name=model]").options[0].textContent = `best fit: ${name}`;
}

/** A new task. While something is being dragged (`done` false) only A* is asked again. */
function setTask(task, { done = true, keepPlace = false } = {}) {
  const place = duel.player.count, atEnd = place > 0 && place >= duel.player.total;
  state.task = task;
  state.stored = false;
  document.body.dataset.domain = isSokoban(task) ? "sokoban" : "maze";
  showDomain();
  if (done && !keepPlace) duel.setTask(task);
  else { duel.task = task; duel.setSearch("right", null, { note: done ? "" : "" }); stopAsking(); askedFor = null; }
  duel.wasAtEnd = keepPlace ? atEnd || duel.wasAtEnd : false;
  samples.clear();
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
  if (done) edited.showEnd = false;
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
  return `#${words}`;
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
  return true;
}

// --- controls

function showDomain() {
  const sokoban = isSokoban(state.task);
  for (const button of document.querySelectorAll("[data-domain]")) button.setAttribute("aria-pressed", String((button.dataset.domain === "sokoban") === sokoban));
  for (const box of document.querySelectorAll(".maze-only")) box.hidden = sokoban;
  for (const box of document.querySelectorAll(".sokoban-only")) box.hidden = !sokoban;
  $("#headline").textContent = `A* and a Transformer search the same ${sokoban ? "Sokoban level" : "maze"}`;
  if (!sokoban) $("[name=size]").value = String(sizeOf(state.task).width);
  fillModels();
}

function fillModels() {
  const select = $("[name=model]"), domain = isSokoban(state.task) ? "sokoban" : "maze";
  const fitting = models.filter((model) => model.domain === domain);
  const key = domain + fitting.length;
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(new Option("best fit", ""), ...fitting.map((model) => new Option(`${model.name} (${model.width}×${model.height})`, model.name)));
  }
  if (state.model && !fitting.some((model) => model.name === state.model)) state.model = "";
  select.value = state.model;
}

async function newTask(domain = isSokoban(state.task) ? "sokoban" : "maze") {
  const size = Number($("[name=size]").value) || 6, sokoban = domain === "sokoban";
  const wanted = { domain, kind: sokoban ? "random" : $("[name=kind]").value, width: sokoban ? 7 : size, height: sokoban ? 7 : size,
    boxes: Number($("[name=boxes]").value), seed: Math.floor(Math.random() * 2 ** 31) };
  try {
    setTask(await post("/api/task", wanted));
    state.sample = 0;
    compute();
  } catch (error) { toast(error.message); }
}

function again(side) {
  if (side === "left") { state.seed = (state.seed + 1) % 1000; runLeft(); } else { state.sample = (state.sample + 1) % 1000; askRight(); }
  remember();
}

for (const size of SIZES) $("[name=size]").add(new Option(`${size} × ${size}`, size, size === 6, size === 6));
for (const button of document.querySelectorAll("[data-do=new]")) button.onclick = () => newTask();
for (const button of document.querySelectorAll("[data-domain]")) {
  button.onclick = async () => {
    if (button.dataset.domain === "maze") return newTask("maze");
    await fillGallery();
    openLevel(0);
  };
}
$("[name=size]").onchange = $("[name=kind]").onchange = () => newTask();
$("[name=boxes]").onchange = () => newTask();
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
  button.setAttribute("role", "radio");
  button.dataset.tool = name;
  $("#drawing-tools").append(button);
}
function chooseTool(name) {
  tool = name;
  for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-checked", String(button.dataset.tool === name));
}
chooseTool("wall");

// --- tabs

const samples = new Samples($("#panel-samples"), {
  state: () => ({ task: state.task, model: state.model || null, temperature: state.temperature }),
  watch: (search) => {
    stopAsking();
    askedFor = null;
    state.sample = search.sample;
    duel.setSearch("right", { ...search, finished: search.reason !== "no eos", judged: true });
    duel.player.seek(0);
    duel.player.play();
    remember();
  },
});
const inside = new Inside($("#panel-inside"), {
  state: () => ({ task: state.task, search: duel.searches.right, model: state.model || null }),
  show: (looks) => duel.cards.right.board.show({ looks }),
});
const game = new Game($("#panel-play"), {});
const runs = new RunBrowser($("#panel-runs"), {
  showTask: (task, astar) => {
    setTask(task);
    stopAsking();
    state.stored = true;
    names("left", astar.who);
    duel.setSearch("left", astar);
  },
  showSearch: (side, search, name) => {
    if (side === "right") { stopAsking(); askedFor = null; } else latestSearch++;
    names(side, name);
    duel.setSearch(side, { ...search, judged: true });
    duel.player.seek(0);
    tellResult();
  },
});

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
  if (state.tab === "play") { game.begin(state.task); game.canvas.focus({ preventScroll: true }); $("#panel-play").scrollIntoView({ block: "nearest" }); }
  if (state.tab === "runs") runs.load();
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
    const page = await postForText("/api/replay", { ...leftRequest(), tokens: answer.tokens, finished: answer.reason !== "no eos", model: state.model || null });
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
setTheme(localStorage.getItem("theme") ?? (preferred.matches ? "dark" : "light"));
preferred.onchange = () => setTheme(localStorage.getItem("theme") ?? (preferred.matches ? "dark" : "light"));
$("[data-do=theme]").onclick = () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
};
$("[data-do=help]").onclick = () => $("#help").showModal();

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, select, textarea, [role=application]")) return;
  if (event.key === " " && event.target.closest("button, a")) return;
  const { player } = duel;
  const keys = { " ": () => player.toggle(), ArrowRight: () => player.seek(player.count + 1), ArrowLeft: () => player.seek(player.count - 1),
    Home: () => player.seek(0), End: () => player.seek(player.total), n: () => newTask(), a: () => again("right"), "?": () => $("#help").showModal() };
  tabs.forEach((tab, at) => { keys[String(at + 1)] = () => openTab(tab.id.slice(4), { focus: true }); });
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

// --- begin: a task and both searches are there before any model is asked

async function openLink() {
  const { step, tab } = state;
  $("[name=algorithm]").value = state.algorithm;
  $("[name=ties]").checked = state.ties;
  $("[name=temperature]").value = state.temperature;
  setTask(state.task);
  openTab(tab);
  await compute();
  if (step) duel.player.seek(step);
  state.step = step;
}

async function begin() {
  const knownModels = get("/api/models").then((found) => { models = found; if (state.task) fillModels(); }).catch((error) => toast(error.message));
  try {
    if (readLink(location.hash)) { await knownModels; await openLink(); return; }
  } catch (error) { toast(error.message); }
  try {
    const { task, seed, left, right } = await get("/static/example.json");
    setTask(task);
    Object.assign(state, { seed, sample: right.sample ?? 0 });
    duel.setSearch("left", left);
    duel.setSearch("right", { ...right, judged: true });
    tellResult();
  } catch (error) { toast(error.message); }
}
window.addEventListener("hashchange", async () => {
  try { if (readLink(location.hash)) await openLink(); } catch (error) { toast(error.message); }
});
document.body.dataset.ready = "true";
begin();

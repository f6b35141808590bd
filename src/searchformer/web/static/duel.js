// Two searches of one task side by side, with one timeline: boards, counters, race bars, token streams, verdicts.
import { cellKey } from "./grid.js";
import { Board, searchState, wrongText } from "./board.js";
import { Player, playerControls } from "./player.js";
import { Stream } from "./stream.js";

const SIDES = ["left", "right"];

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function verdictText(search) {
  if (!search) return "";
  if (search.verdict === "unsolvable") return "no path exists";
  if (search.verdict === "invalid") return `invalid: ${search.reason}`;
  const moves = search.plan_length - 1;
  if (search.verdict === "optimal") return `shortest\u00a0plan, ${moves}\u00a0${moves === 1 ? "move" : "moves"}`;
  return `plan of ${moves} moves; ${search.optimal_length - 1} would do`;
}

export function honestyText(search) {
  if (!search || search.legal === null || search.verdict === "unsolvable") return "";
  if (search.legal) return "a run of A*";
  return search.sound ? "every step true, not A*'s order" : `not every step is true (${search.violation})`;
}

const LEGEND = {
  frontier: "frontier", heat: "closed, early to late", current: "now", plan: "plan",
  disorder: "not in A*'s order", wrong: "untrue step", mark: "limit: shortest search that finds the plan",
};

function legend() {
  const list = element("ul", "legend");
  list.setAttribute("aria-label", "Legend");
  for (const [name, text] of Object.entries(LEGEND)) {
    const entry = element("li");
    entry.append(element("i", `swatch ${name}`), text);
    list.append(entry);
  }
  return list;
}

export class Duel {
  /** Builds into `root`. `onChange(count)` is called when the place on the timeline changes. */
  constructor(root, { onChange = () => {} } = {}) {
    this.onChange = onChange;
    this.searches = { left: null, right: null };
    this.others = [];  // searches that are shown elsewhere, along the same timeline
    this.task = null;
    this.cards = {};
    const boards = element("div", "boards");
    for (const side of SIDES) boards.append(this.buildCard(side));
    const controls = playerControls();
    const streams = element("div", "streams");
    for (const side of SIDES) streams.append(this.buildStream(side));
    this.streams = streams;
    this.live = element("p", "visually-hidden");
    this.live.setAttribute("aria-live", "polite");
    root.append(boards, controls, legend(), this.live);
    this.player = new Player(controls, (count) => this.seek(count));
  }

  buildCard(side) {
    const card = element("section", `card ${side}`), head = element("header"), name = element("h2", "who");
    const frame = element("div", "frame"), canvas = element("canvas"), race = element("div", "race");
    const bar = element("div", "bar"), whole = element("i", "whole"), fill = element("i"), limit = element("b");
    const counters = element("dl", "counters"), verdict = element("p", "verdict"), note = element("p", "note");
    canvas.setAttribute("role", "img");
    canvas.dataset.side = side;
    limit.title = "the shortest search that finds the plan";
    bar.append(whole, fill, limit);
    race.append(bar);
    const numbers = {};
    for (const counter of ["tokens", "closed", "created", "over"]) {
      const box = element("div"), value = element("dd");
      box.append(value, element("dt", "", { over: "the limit", tokens: "tokens of search" }[counter] ?? counter));
      if (counter === "over") box.title = "trace tokens over those of the shortest search that finds an optimal plan";
      counters.append(box);
      numbers[counter] = value;
    }
    head.append(name);
    frame.append(canvas);
    card.append(head, frame, race, counters, verdict, note);
    this.cards[side] = { card, head, name, canvas, whole, fill, limit, numbers, verdict, note, waiting: "", board: new Board(canvas) };
    canvas.addEventListener("pointermove", (event) => this.hoverCell(side, event.buttons ? null : this.cards[side].board.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.hoverCell(side, null));
    return card;
  }

  buildStream(side) {
    const column = element("section", `column ${side}`), title = element("h3", "who"), box = element("div", `stream ${side}`);
    box.setAttribute("aria-label", side === "left" ? "Tokens of the first search" : "Tokens of the second search");
    column.append(title, box);
    this.cards[side].title = title;
    this.cards[side].stream = new Stream(box, {
      onHover: (number) => this.hoverStep(side, number),
      onPick: (number, token) => { this.player.seek(number + 1); this.onToken?.(side, number, token === undefined ? null : Number(token)); },
    });
    return column;
  }

  /** Who searches on a side. */
  setName(side, name) {
    const card = this.cards[side];
    card.title.textContent = card.name.textContent = card.name.title = name;
  }

  /** A new task: nothing is known of it yet. */
  setTask(task) {
    this.task = task;
    for (const side of SIDES) this.cards[side].board.show({ task, search: null, cells: null, looks: null });
    for (const side of SIDES) this.setSearch(side, null, { waiting: "searching…" });
  }

  /** Show a search (or none) on one side. Who is at its end follows it there as it grows. `waiting` says what is to come. */
  setSearch(side, search, { note = "", waiting = "" } = {}) {
    const atEnd = this.player.count >= this.player.total && this.player.total > 0;
    this.searches[side] = search;
    const card = this.cards[side];
    card.note.textContent = note;
    card.waiting = waiting;
    card.card.classList.toggle("waiting", waiting !== "");
    card.stream.show(search);
    this.setLength();
    if (atEnd && this.keepEnd) this.player.count = this.player.total;
    this.player.refresh();
    this.seek(this.player.count, { quiet: true });
  }

  /** The timeline ends with the longest search. */
  setLength() {
    const shown = [...SIDES.map((side) => this.searches[side]), ...this.others];
    this.player.setTotal(Math.max(...shown.map((search) => search?.steps.length ?? 0)));
  }

  seek(count, { quiet = false } = {}) {
    const most = Math.max(1, ...SIDES.map((side) => this.searches[side]?.trace_tokens ?? this.searches[side]?.tokens.length ?? 0));
    for (const side of SIDES) {
      const card = this.cards[side], search = this.searches[side];
      const state = searchState(search, count);
      card.board.show({ task: this.task, search, count });
      card.stream.seek(count);
      const inTrace = search?.trace_tokens === undefined ? state.tokens : Math.min(state.tokens, search.trace_tokens);
      card.numbers.tokens.textContent = inTrace;
      card.numbers.closed.textContent = state.closed;
      card.numbers.created.textContent = state.created;
      const shortest = search?.shortest_search ?? this.searches.left?.shortest_search ?? 0;
      card.numbers.over.textContent = shortest && inTrace ? `${(inTrace / shortest).toFixed(2)}×` : "–";
      card.fill.style.width = `${100 * inTrace / most}%`;
      card.whole.style.width = `${100 * (search?.trace_tokens ?? inTrace) / most}%`;
      card.limit.style.left = `${100 * Math.min(1, shortest / most)}%`;
      card.limit.hidden = !shortest;
      const done = state.finished && search?.verdict;
      card.card.classList.toggle("done", Boolean(done));
      card.card.classList.toggle("disorder", !done && Boolean(state.current?.wrong) && !state.current.unsound);
      card.card.dataset.verdict = done ? search.verdict : "";
      card.verdict.textContent = done ? verdictText(search) : wrongText(state.current) || card.waiting;
      card.verdict.title = done ? honestyText(search) : "";
      card.canvas.setAttribute("aria-label", this.describe(side, state));
    }
    if (!quiet) {
      if (!this.player.playing) this.live.textContent = SIDES.map((side) => this.cards[side].canvas.getAttribute("aria-label")).join(" ");
      this.onChange(count);
    }
  }

  describe(side, state) {
    const search = this.searches[side];
    if (!search) return `${this.cards[side].name.textContent}: no search yet.`;
    const step = state.current;
    const now = step ? `${step.kind} at ${step.cells.map((cell) => `column ${cell[0]}, row ${cell[1]}`).join("; ")}` : "not begun";
    return `${search.who}: ${now}; ${state.closed} closed, ${state.created} created. ${state.finished ? verdictText(search) : ""}`;
  }

  hoverStep(side, number) {
    const search = this.searches[side];
    this.cards[side].board.show({ hover: number === null || !search?.steps[number] ? null : search.steps[number].cells.slice(0, 1) });
  }

  hoverCell(side, cell) {
    const known = cell && this.searches[side]?.steps.some((step) => step.cells.length && cellKey(step.cells[0]) === cellKey(cell));
    this.cards[side].board.show({ hover: known ? [cell] : null });
    this.cards[side].stream.highlight(known ? cell : null);
  }
}

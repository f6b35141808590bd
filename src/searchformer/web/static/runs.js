// Runs: the report of a run, and its models' stored answers to one task: base, rounds and controls side by side.
import { get } from "./api.js";
import { Board, searchState } from "./board.js";
import { element, verdictText } from "./duel.js";

const isRound = (label) => /round/.test(label) && !/control/.test(label);

export class RunBrowser {
  /** `showTask(task, astar, place)` and `showSearch(side, search, about)` fill the stage, `lineUp(searches)` says what runs along
   * below it, `problem(text)` tells what went wrong. `about` has label and model, and evaluation and sample if stored. */
  constructor(root, { showTask, showSearch, lineUp, problem }) {
    Object.assign(this, { root, showTask, showSearch, lineUp, problem, entries: [], count: 0, opened: 0 });
    this.select = root.querySelector("[name=run]");
    this.tasks = root.querySelector("[name=stored-task]");
    this.list = root.querySelector(".lineup");
    this.note = root.querySelector(".note");
    this.report = root.querySelector(".report");
    this.select.onchange = () => this.guarded(() => this.open(this.select.value));
    this.tasks.onchange = () => this.guarded(() => this.openTask(this.tasks.value));
  }

  /** Open the first run, or what `wanted` names: run, id of a task, and a stored answer for each side. */
  async load(wanted = null) {
    if (this.loaded && !wanted) return true;
    this.loaded = true;
    return this.guarded(async () => {
      const runs = await get("/api/runs");
      this.root.classList.toggle("empty", !runs.length);
      this.select.replaceChildren(...runs.map((run) => new Option(run.name, run.name)));
      if (wanted || runs.length) await this.open(wanted?.run ?? runs[0].name, wanted);
    });
  }

  async guarded(work) {
    this.note.textContent = "opening…";
    try { await work(); this.note.textContent = ""; return true; } catch (error) {
      this.note.textContent = error.message;
      this.problem(error.message);
      return false;
    }
  }

  async open(name, wanted = null) {
    const number = ++this.opened, run = await get(`/api/runs/${encodeURIComponent(name)}`);
    if (wanted === null && this.select.value !== name) return;
    this.run = run;
    this.select.value = name;
    this.report.hidden = !this.run.has_report;
    this.report.href = `/runs/${encodeURIComponent(name)}/report`;
    this.tasks.replaceChildren(new Option("choose a test task", ""), ...this.run.tasks.map((task, number) => new Option(`task ${number + 1}: ${task.optimal_length - 1} moves, ${task.evaluations} models`, task.task_id)));
    this.clear();
    if (number !== this.opened) return;
    if (wanted || this.run.tasks.length) await this.openTask(wanted?.id ?? this.run.tasks[0].task_id, wanted);
    else throw new Error("this run has no evaluated answers yet");
  }

  /** Another task is shown: what is still being opened comes too late. */
  leave() {
    this.opened++;
    if (this.entries.length) this.clear();
  }

  clear() {
    this.entries = [];
    this.tasks.value = "";
    this.list.replaceChildren();
    this.lineUp([]);
  }

  async openTask(id, wanted = null) {
    this.path = `/api/runs/${encodeURIComponent(this.run.name)}/tasks/${encodeURIComponent(id)}`;
    const number = ++this.opened, found = await get(this.path);
    if (number !== this.opened) return;
    this.clear();
    this.showTask(found.task, found.astar, { run: this.run.name, id });
    const shown = this.opened;
    this.tasks.value = id;
    const known = Object.fromEntries(this.run.evaluations.map((each) => [each.name, each]));
    const astar = { one: { label: "A*", answers: [] }, about: { label: "A*", model: null }, search: found.astar };
    this.entries = [astar, ...found.evaluations.map((one) => ({ one, known: known[one.evaluation], about: { label: one.label, model: one.model, evaluation: one.evaluation } }))];
    for (const entry of this.entries) this.list.append(this.build(entry, found.task));
    await Promise.all(this.entries.slice(1).map((entry) => this.choose(entry, this.wantedSample(entry, wanted))));
    if (shown === this.opened) await this.fillStage(wanted);
  }

  wantedSample({ one }, wanted) {
    const named = [wanted?.right, wanted?.left].find((place) => place?.evaluation === one.evaluation);
    const typical = [...one.answers].sort((a, b) => a.trace_tokens - b.trace_tokens)[Math.floor((one.answers.length - 1) / 2)];
    return named?.sample ?? typical.sample;
  }

  /** What the link names; otherwise A* against the last round, or the last model without rounds. */
  async fillStage(wanted) {
    const last = this.entries.findLast(({ one }) => isRound(one.label)) ?? this.entries.at(-1);
    if (!wanted) { this.watch("right", last); return; }
    for (const side of ["left", "right"]) {
      if (!wanted[side]) continue;
      const entry = this.entries.find(({ one }) => one.evaluation === wanted[side].evaluation);
      if (!entry) throw new Error(`the run ${this.run.name} has no answers of ${wanted[side].evaluation} to this task`);
      await this.choose(entry, wanted[side].sample);
      this.watch(side, entry);
    }
  }

  /** Take one of a model's stored answers. */
  async choose(entry, sample) {
    if (entry.search?.sample === sample) return;
    const query = new URLSearchParams({ evaluation: entry.one.evaluation, sample });
    entry.search = await get(`${this.path}/answer?${query}`);
    if (!this.entries.includes(entry)) return;
    entry.about = { ...entry.about, sample };
    for (const chip of entry.chips) chip.setAttribute("aria-pressed", String(Number(chip.dataset.sample) === sample));
    this.lineUp(this.entries.map((each) => each.search).filter(Boolean));
    this.seek(this.count);
  }

  watch(side, entry) { this.showSearch(side, entry.search, entry.about); }

  build(entry, task) {
    const { one, known } = entry, box = element("li", "entry"), frame = element("div", "frame"), canvas = element("canvas");
    const race = element("div", "bar"), fill = element("i"), limit = element("b"), tokens = element("p", "tokens"), verdict = element("p", "verdict");
    const name = element("h3", "", one.label), watch = element("p", "watch"), chips = element("div", "answers");
    name.title = one.evaluation ?? "A*, ties at random";
    canvas.setAttribute("role", "img");
    frame.append(canvas);
    race.append(fill, limit);
    limit.hidden = true;
    entry.chips = one.answers.map((answer) => this.chip(entry, answer));
    chips.append(...entry.chips);
    for (const side of ["left", "right"]) {
      const button = element("button", "", side === "left" ? "← left" : "right →");
      button.type = "button";
      button.dataset.side = side;
      button.setAttribute("aria-label", `Watch ${one.label} on the ${side}`);
      button.onclick = () => this.watch(side, entry);
      watch.append(button);
    }
    const share = known?.optimal === null || !known ? "" : `${(100 * known.optimal).toFixed(1)}% optimal in this run`;
    const ratio = known?.length_ratio ? `A* searches ${known.length_ratio.toFixed(2)} × as long` : "";
    box.append(name, frame, race, tokens, verdict, chips, element("p", "tip", [share, ratio].filter(Boolean).join("; ")), watch);
    Object.assign(entry, { box, canvas, fill, limit, tokens, verdict, board: new Board(canvas) });
    entry.board.show({ task, search: null, count: 0 });
    return box;
  }

  chip(entry, answer) {
    const chip = element("button", `chip ${answer.verdict}`, answer.trace_tokens), { label } = entry.one;
    chip.type = "button";
    chip.dataset.sample = answer.sample;
    chip.title = `answer ${answer.sample}: ${answer.verdict}`;
    chip.setAttribute("aria-label", `Watch answer ${answer.sample} of ${label}: ${answer.trace_tokens} tokens, ${answer.verdict}`);
    chip.onclick = () => this.guarded(async () => { await this.choose(entry, answer.sample); this.watch("right", entry); });
    return chip;
  }

  /** Bring everyone to a place on the timeline. */
  seek(count) {
    this.count = count;
    const most = Math.max(1, ...this.entries.map(({ search }) => search?.trace_tokens ?? 0));
    for (const { search, board, fill, limit, tokens, verdict, box, canvas, one } of this.entries) {
      if (!search) continue;
      const state = searchState(search, count), written = Math.min(state.tokens, search.trace_tokens);
      board.show({ search, count });
      fill.style.width = `${100 * written / most}%`;
      limit.style.left = `${100 * search.shortest_search / most}%`;
      limit.hidden = false;
      tokens.textContent = `${written} tokens`;
      verdict.textContent = state.finished ? verdictText(search) : "";
      box.dataset.verdict = state.finished ? search.verdict : "";
      canvas.setAttribute("aria-label", `${one.label}: ${written} tokens, ${state.closed} closed. ${verdict.textContent}`);
    }
  }
}

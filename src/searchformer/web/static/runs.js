// Runs: the report of a run, its models, and any test task's stored answers, side by side.
import { get } from "./api.js";
import { element, verdictText } from "./duel.js";

export class RunBrowser {
  /** `showTask(task, astar)` and `showSearch(side, search, name)` put things on the boards. */
  constructor(root, { showTask, showSearch }) {
    Object.assign(this, { root, showTask, showSearch });
    this.select = root.querySelector("[name=run]");
    this.tasks = root.querySelector("[name=stored-task]");
    this.table = root.querySelector(".evaluations");
    this.note = root.querySelector(".note");
    this.report = root.querySelector(".report");
    this.select.onchange = () => this.open(this.select.value);
    this.tasks.onchange = () => this.openTask(this.tasks.value);
  }

  async load() {
    if (this.loaded) return;
    this.loaded = true;
    await this.guarded(async () => {
      const runs = await get("/api/runs");
      this.root.classList.toggle("empty", !runs.length);
      this.select.replaceChildren(...runs.map((run) => new Option(run.name, run.name)));
      if (runs.length) await this.open(runs[0].name);
    });
  }

  async guarded(work) {
    this.note.textContent = "";
    try { await work(); } catch (error) { this.note.textContent = error.message; }
  }

  open(name) {
    return this.guarded(async () => {
      this.run = await get(`/api/runs/${encodeURIComponent(name)}`);
      this.report.hidden = !this.run.has_report;
      this.report.href = `/runs/${encodeURIComponent(name)}/report`;
      this.tasks.replaceChildren(...this.run.tasks.map((task, number) => new Option(`task ${number + 1}: ${task.optimal_length - 1} moves, ${task.evaluations} models`, task.task_id)));
      if (this.run.tasks.length) await this.openTask(this.run.tasks[0].task_id);
      else this.note.textContent = "This run has no evaluated answers yet.";
    });
  }

  openTask(id) {
    return this.guarded(async () => {
      const path = `/api/runs/${encodeURIComponent(this.run.name)}/tasks/${id}`;
      const found = await get(path);
      this.showTask(found.task, found.astar);
      const known = Object.fromEntries(this.run.evaluations.map((each) => [each.name, each]));
      const rows = found.evaluations.map((one) => this.row(one, known[one.evaluation], path));
      const head = element("tr");
      for (const title of ["model", "optimal", "A*'s length / its length", "answers to this task (trace tokens)", "watch"]) head.append(element("th", "", title));
      const body = element("tbody");
      body.append(...rows);
      const top = element("thead");
      top.append(head);
      this.table.replaceChildren(top, body);
      const searching = found.evaluations.map((one) => /round/.test(one.label) && !/control/.test(one.label)).lastIndexOf(true);
      rows.at(searching)?.querySelector("[data-side=right]").click();
    });
  }

  row(one, about, path) {
    const row = element("tr"), answers = element("td", "answers"), watch = element("td", "watch"), name = element("th", "", one.label);
    name.scope = "row";
    name.title = one.evaluation;
    const typical = [...one.answers].sort((a, b) => a.trace_tokens - b.trace_tokens)[Math.floor((one.answers.length - 1) / 2)];
    let chosen = typical.sample;
    const load = (side) => this.guarded(async () => {
      const query = new URLSearchParams({ evaluation: one.evaluation, sample: chosen });
      this.showSearch(side, await get(`${path}/answer?${query}`), one.label);
    });
    for (const answer of one.answers) {
      const chip = element("button", `chip ${answer.verdict}`, answer.trace_tokens);
      chip.type = "button";
      chip.title = `answer ${answer.sample}: ${verdictText({ ...answer, optimal_length: 0, reason: "" })}`;
      chip.setAttribute("aria-label", `Watch answer ${answer.sample} of ${one.label}: ${answer.trace_tokens} tokens, ${answer.verdict}`);
      chip.onclick = () => { chosen = answer.sample; load("right"); };
      answers.append(chip);
    }
    for (const side of ["left", "right"]) {
      const button = element("button", "", side);
      button.type = "button";
      button.dataset.side = side;
      button.setAttribute("aria-label", `Watch ${one.label} on the ${side}`);
      button.onclick = () => load(side);
      watch.append(button);
    }
    const percent = about.optimal === null ? "–" : `${(100 * about.optimal).toFixed(1)}%`;
    row.append(name, element("td", "", percent), element("td", "", about.length_ratio?.toFixed(3) ?? "–"), answers, watch);
    return row;
  }
}

// Many answers: how long the model's searches are, against A*'s, and how many end in a shortest plan.
import { ask, post } from "./api.js";
import { element, verdictText } from "./duel.js";

const BINS = 24;
const FARTHEST = 1.5;  // times A*'s longest search: longer ones are counted in the last bar
const INVITATION = "Ask the model many times: how long are its searches, and how many of its plans are shortest?";

export class Samples {
  /** `state()` gives task, model, temperature; `watch(search)` shows one answer; `onAsk(count)` is told of questions. */
  constructor(root, { state, watch, onAsk }) {
    Object.assign(this, { root, state, watch, onAsk, answers: [], lengths: null, stop: () => {} });
    this.count = root.querySelector("[name=samples]");
    this.button = root.querySelector("[data-do=sample]");
    this.chart = root.querySelector(".chart");
    this.summary = root.querySelector(".summary");
    this.list = root.querySelector(".answers");
    this.button.onclick = () => (this.running ? this.halt("stopped") : this.run());
    this.summary.textContent = INVITATION;
    this.setCount(this.count.value);
    this.count.oninput = () => this.setCount(this.count.value);
  }

  setCount(count) {
    this.count.value = count;
    this.root.querySelector("[data-out=samples]").textContent = this.count.value;
  }

  clear() {
    this.stop();
    this.onAsk(0);
    this.answers = [];
    this.lengths = null;
    this.setRunning(false);
    this.chart.replaceChildren();
    this.list.replaceChildren();
    this.summary.textContent = INVITATION;
  }

  setRunning(running) {
    this.running = running;
    this.button.textContent = running ? "Stop" : "Sample";
  }

  halt(reason) {
    this.stop();
    this.setRunning(false);
    if (reason) this.summary.textContent = reason;
  }

  async run() {
    this.clear();
    const { task, model, temperature } = this.state(), samples = Number(this.count.value);
    this.setRunning(true);
    this.onAsk(samples);
    this.summary.textContent = "asking…";
    this.stop = ask({ task, model, temperature, samples }, {
      queue: ({ place }) => { this.summary.textContent = `place ${place} in the queue`; },
      answer: ({ search }) => { this.answers.push(search); this.draw(samples); },
      done: () => this.setRunning(false),
      error: (reason) => this.halt(reason),
    });
    try { this.lengths = await post("/api/lengths", { task }); this.draw(samples); } catch (error) { this.halt(error.message); }
  }

  draw(samples) {
    if (!this.lengths) return;
    const own = this.answers.map((answer) => answer.trace_tokens), astar = this.lengths.trace_tokens, limit = this.lengths.shortest_search;
    const longest = Math.max(...own, ...astar, limit, 1), most = Math.min(longest, FARTHEST * Math.max(...astar, limit, 1)), width = most / BINS;
    const bin = (value) => Math.min(BINS - 1, Math.floor(value / width));
    const counts = (values) => values.reduce((all, value) => { all[bin(value)]++; return all; }, Array(BINS).fill(0));
    const [a, b] = [counts(astar), counts(own)], tallest = Math.max(...a.map((n) => n / astar.length), ...b.map((n) => n / Math.max(own.length, 1)), 0.01);
    const columns = a.map((number, at) => {
      const column = element("div", "bin");
      for (const [kind, share] of [["astar", number / astar.length], ["model", own.length ? b[at] / own.length : 0]]) {
        const bar = element("i", kind);
        bar.style.height = `${100 * share / tallest}%`;
        column.append(bar);
      }
      const to = longest > most && at === BINS - 1 ? longest : (at + 1) * width;
      column.title = `${Math.round(at * width)} to ${Math.round(to)} tokens: A* ${number}, model ${b[at]}`;
      return column;
    });
    const mark = element("b", "limit");
    mark.style.left = `${100 * limit / most}%`;
    mark.append(element("span", "", `limit ${limit}`));
    const axis = element("div", "axis");
    axis.append(element("span", "", "0"), element("span", "", `${Math.round(most)} tokens of search${longest > most ? " or more" : ""}`));
    const plot = element("div", "plot");
    plot.append(...columns, mark);
    this.chart.replaceChildren(plot, axis);
    const optimal = this.answers.filter((answer) => answer.verdict === "optimal"), mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const share = own.length ? Math.round(100 * optimal.length / own.length) : 0;
    const found = optimal.length ? `; those take ${mean(optimal.map((each) => each.trace_tokens)).toFixed(0)} tokens of search, A* ${mean(astar).toFixed(0)} on average` : "";
    this.summary.textContent = `${own.length} of ${samples} answers: ${share}% optimal${found}`;
    this.chart.setAttribute("role", "img");
    this.chart.setAttribute("aria-label", `Lengths of searches: ${this.summary.textContent}; the limit is ${limit} tokens`);
    this.list.replaceChildren(...[...this.answers].sort((x, y) => x.trace_tokens - y.trace_tokens).map((answer) => this.chip(answer)));
  }

  chip(answer) {
    const button = element("button", `chip ${answer.verdict}`, answer.trace_tokens);
    button.type = "button";
    button.title = `answer ${answer.sample}: ${verdictText(answer)}`;
    button.setAttribute("aria-label", `Watch answer ${answer.sample}: ${answer.trace_tokens} tokens, ${verdictText(answer)}`);
    button.onclick = () => {
      this.list.querySelectorAll("[aria-pressed]").forEach((each) => each.removeAttribute("aria-pressed"));
      button.setAttribute("aria-pressed", "true");
      this.watch(answer);
    };
    return button;
  }
}

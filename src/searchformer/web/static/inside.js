// Look inside: the likeliest next tokens, and where the decoder looks, drawn on the board and on the trace.
import { post } from "./api.js";
import { cellKey } from "./grid.js";
import { element } from "./duel.js";

export class Inside {
  /** `state()` gives task, search, model and the token that is to be looked at; `show(looks)` draws on the board;
   * `onChoice({ attention, head })` is told what was chosen. */
  constructor(root, { state, show, onChoice }) {
    Object.assign(this, { root, state, show, onChoice, view: null });
    this.bars = root.querySelector(".next");
    this.heads = root.querySelector(".heads");
    this.trace = root.querySelector(".trace");
    this.note = root.querySelector(".note");
    this.kind = root.querySelector("[name=attention]");
    this.kind.onchange = () => this.choose({});
    this.head = "";
  }

  /** Look at the task or its own search, with one head (`1.2`: layer 1, head 2) or all of them. */
  choose({ attention = this.kind.value, head = this.head }) {
    this.kind.value = attention === "answer" ? "answer" : "prompt";
    this.head = head;
    this.draw();
    this.onChoice({ attention: this.kind.value, head });
  }

  /** Layer and head, from 0; null for the mean over all. */
  get chosen() {
    const [layer, head] = this.head.split(".").map((number) => Number(number) - 1);
    return this.view && layer < this.view.layers && head < this.view.heads ? [layer, head] : null;
  }

  /** Ask for the place before token `at`; only the last of several requests counts. */
  async look(at) {
    const { task, search, model, problem } = this.state();
    this.controller?.abort();
    if (problem) { this.clear(problem); return; }
    if (!search) { this.note.textContent = "The model has not answered yet."; return; }
    this.controller = new AbortController();
    const place = Math.min(at, search.tokens.length);
    try {
      this.view = await post("/api/inside", { task, model, tokens: search.tokens.slice(0, place) }, { signal: this.controller.signal });
    } catch (error) {
      if (error.name !== "AbortError") { this.note.textContent = error.message; this.show(null); }
      return;
    }
    this.written = search.tokens[place] ?? "eos";
    this.place = place;
    this.drawStep(search);
    this.draw();
  }

  /** The step that is being written: each of its tokens can be looked at. */
  drawStep(search) {
    const number = search.steps.findLastIndex((step) => step.at <= this.place);
    const first = search.steps[number]?.at ?? 0, end = search.steps[number + 1]?.at ?? search.tokens.length;
    const places = Array.from({ length: end - first }, (_, at) => first + at);
    if (this.place >= search.tokens.length) places.push(search.tokens.length);
    this.root.querySelector(".step-tokens").replaceChildren(...places.map((at) => {
      const button = element("button", "token", search.tokens[at] ?? "eos");
      button.type = "button";
      button.setAttribute("aria-pressed", String(at === this.place));
      button.onclick = () => this.look(at);
      return button;
    }));
  }

  /** Show nothing, and say why. */
  clear(reason) {
    this.view = null;
    for (const box of [this.bars, this.heads, this.trace, this.root.querySelector(".step-tokens")]) box.replaceChildren();
    this.note.textContent = reason;
    this.show(null);
  }

  hide() { this.controller?.abort(); this.show(null); }

  draw() {
    if (!this.view) return;
    const { view } = this, unit = view.unit === "step" ? "steps" : "tokens";
    this.note.textContent = `Before token ${this.place} (“${this.written}” was written). ${view.layers} layers × ${view.heads} heads; a position of this decoder holds ${view.unit === "step" ? "a step" : "a token"}.`;
    this.bars.replaceChildren(...view.next_tokens.map(({ token, probability }) => {
      const row = element("div", token === this.written ? "bar written" : "bar"), fill = element("i");
      fill.style.width = `${100 * probability}%`;
      row.append(element("span", "token", token), fill, element("span", "share", `${(100 * probability).toFixed(1)}%`));
      return row;
    }));
    const looks = this.kind.value === "prompt" ? view.prompt : view.answer;
    this.drawHeads(looks);
    this.drawTrace(looks, unit);
    this.show(this.cellWeights(looks));
  }

  weight(look) {
    if (this.chosen) return look.weights[this.chosen[0]][this.chosen[1]];
    const all = look.weights.flat();
    return all.reduce((sum, value) => sum + value, 0) / all.length;
  }

  cellWeights(looks) {
    const cells = new Map();
    for (const look of looks) for (const cell of look.cells) {
      const at = cells.get(cellKey(cell)) ?? { cell, weight: 0 };
      at.weight += this.weight(look);
      cells.set(cellKey(cell), at);
    }
    return [...cells.values()];
  }

  drawHeads(looks) {
    const { layers, heads } = this.view;
    this.heads.style.setProperty("--heads", heads);
    const choices = [[null, "all"]];
    for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) choices.push([[layer, head], `${layer + 1}.${head + 1}`]);
    this.heads.replaceChildren(...choices.map(([choice, label]) => {
      const button = element("button", choice ? "" : "all", label), peak = choice ? Math.max(...looks.map((look) => look.weights[choice[0]][choice[1]])) : 0;
      button.type = "button";
      button.style.setProperty("--peak", peak);
      button.title = choice ? `layer ${choice[0] + 1}, head ${choice[1] + 1}: strongest weight ${(100 * peak).toFixed(0)}%` : "mean over all layers and heads";
      button.setAttribute("aria-pressed", String(String(choice) === String(this.chosen)));
      button.onclick = () => this.choose({ head: choice ? label : "" });
      return button;
    }));
  }

  drawTrace(looks, unit) {
    const strongest = looks.map((look, at) => ({ look, at, weight: this.weight(look) })).sort((a, b) => b.weight - a.weight).slice(0, 8);
    this.trace.replaceChildren(element("h3", "", `Most looked at (${unit})`), ...strongest.map(({ look, weight }) => {
      const row = element("div", "bar"), fill = element("i");
      fill.style.width = `${100 * weight}%`;
      const where = look.tokens.length === 1 && look.cells.length ? ` (${look.cells[0].join(", ")})` : "";
      row.append(element("span", "token", look.tokens.join(" ") + where), fill, element("span", "share", `${(100 * weight).toFixed(1)}%`));
      return row;
    }));
  }
}

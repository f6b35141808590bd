// The token stream beside a board: a line per step, the current one in view, wrong ones marked with the reason.
import { stepEnd, wrongText } from "./board.js";

export class Stream {
  /** `onHover(step number or null)`, `onPick(step number)`. */
  constructor(root, { onHover, onPick }) {
    this.root = root;
    this.search = null;
    this.rows = [];
    this.count = 0;
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    const stepOf = (event) => event.target.closest("[data-step]");
    root.onpointerover = (event) => onHover(stepOf(event) ? Number(stepOf(event).dataset.step) : null);
    root.onpointerleave = () => onHover(null);
    root.onkeydown = (event) => {
      const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!move || !this.search) return;
      event.preventDefault();
      onPick(Math.min(Math.max(this.count + move, 1), this.rows.length) - 1);
    };
    root.onclick = (event) => { if (stepOf(event)) onPick(Number(stepOf(event).dataset.step), event.target.dataset.token); };
  }

  /** Show a search; rows that are there already stay. */
  show(search) {
    const same = this.search && search && search.steps.length >= this.rows.length && this.search.id === search.id && !search.judged;
    if (!same) { this.root.replaceChildren(); this.rows = []; }
    this.search = search;
    if (!search) return;
    const added = document.createDocumentFragment();
    for (let number = this.rows.length; number < search.steps.length; number++) {
      const row = this.row(search, number);
      this.rows.push(row);
      added.append(row);
    }
    this.root.append(added);
  }

  row(search, number) {
    const step = search.steps[number], end = stepEnd(search, number);
    const row = document.createElement("p");
    row.dataset.step = number;
    row.className = step.kind;
    for (let at = step.at; at < end; at++) {
      const token = document.createElement("span");
      token.textContent = search.tokens[at];
      token.dataset.token = at;
      row.append(token, " ");
    }
    if (step.wrong) {
      const reason = document.createElement("em");
      reason.textContent = wrongText(step);
      row.classList.add(step.unsound ? "unsound" : "disorder");
      row.append(reason);
    }
    return row;
  }

  /** Mark the steps done, and keep the last of them in view. */
  seek(count) {
    this.count = Math.min(count, this.rows.length);
    this.rows.forEach((row, number) => {
      row.classList.toggle("done", number < count);
      row.classList.toggle("now", number === count - 1);
    });
    const row = this.rows[Math.min(count, this.rows.length) - 1];
    if (row) this.root.scrollTop = row.offsetTop - this.root.clientHeight / 2;
    else this.root.scrollTop = 0;
  }

  /** Mark the steps that speak of a cell. */
  highlight(cell) {
    this.rows.forEach((row, number) => {
      const first = this.search.steps[number].cells[0];
      row.classList.toggle("same", Boolean(cell && first && first[0] === cell[0] && first[1] === cell[1]));
    });
  }
}

// Play yourself: arrow keys, click to move, undo, restart, hints, and how far from the optimum.
import { post } from "./api.js";
import { Board } from "./board.js";
import { keyOf } from "./editor.js";
import { cellKey, isSokoban, isSolved, layoutOf, makeLevel, moveCells, sizeOf, STEPS } from "./grid.js";

/** The letters of a shortest walk to a cell without pushing anything, or null. */
export function walkTo(layout, size, cells, target) {
  const boxes = new Set(cells.slice(1).map(cellKey));
  const paths = new Map([[cellKey(cells[0]), ""]]), frontier = [cells[0]];
  while (frontier.length) {
    const cell = frontier.shift(), path = paths.get(cellKey(cell));
    if (cellKey(cell) === cellKey(target)) return path;
    for (const letter of Object.keys(STEPS)) {
      const moved = moveCells(layout, size, [cell], letter);
      if (moved && !boxes.has(cellKey(moved[0])) && !paths.has(cellKey(moved[0]))) {
        paths.set(cellKey(moved[0]), path + letter);
        frontier.push(moved[0]);
      }
    }
  }
  return null;
}

export class Game {
  /** `onMove(letters)` is told the moves so far. */
  constructor(root, { onMove }) {
    Object.assign(this, { root, onMove });
    this.canvas = root.querySelector("canvas");
    this.board = new Board(this.canvas);
    this.status = root.querySelector(".status");
    const act = (name, action) => { root.querySelector(`[data-do=${name}]`).onclick = () => { action(); this.canvas.focus({ preventScroll: true }); }; };
    act("undo", () => this.undo());
    act("restart", () => this.begin(this.task));
    act("hint", () => this.hint());
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.onkeydown = (event) => this.press(event);
    this.canvas.onclick = (event) => this.click(this.board.cellAt(event));
  }

  /** Start a game; `moves` are made at once. */
  begin(task, moves = "") {
    this.task = task;
    this.layout = layoutOf(task);
    this.size = sizeOf(task);
    this.history = [this.layout.cells];
    this.letters = [];
    this.hinted = 0;
    this.best = null;
    for (const letter of moves) if (STEPS[letter]) this.move(letter);
    this.draw("");
    post("/api/plan", { task }).then((plan) => {
      if (task !== this.task) return;
      this.best = plan.solvable ? plan.moves.length : null;
      this.draw(plan.solvable ? "" : "This one cannot be solved.");
    }).catch((error) => this.draw(error.message));
  }

  get cells() { return this.history.at(-1); }
  get solved() { return isSolved(this.layout, this.cells); }

  press(event) {
    const letters = { ArrowUp: "u", ArrowDown: "d", ArrowLeft: "l", ArrowRight: "r" };
    const others = { u: () => this.undo(), Backspace: () => this.undo(), r: () => this.begin(this.task), h: () => this.hint() };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = keyOf(event);
    if (letters[key]) this.move(letters[key]);
    else if (others[key]) others[key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(letter) {
    if (this.solved) return;
    const moved = moveCells(this.layout, this.size, this.cells, letter);
    if (moved) { this.history.push(moved); this.letters.push(letter.toLowerCase()); }
    this.draw("");
  }

  click(target) {
    const [x, y] = this.cells[0], step = Object.entries(STEPS).find(([, [dx, dy]]) => x + dx === target[0] && y + dy === target[1]);
    const walk = step ? step[0] : walkTo(this.layout, this.size, this.cells, target);
    for (const letter of walk ?? "") this.move(letter);
  }

  undo() {
    if (this.history.length > 1) { this.history.pop(); this.letters.pop(); }
    this.draw("");
  }

  /** The task as it stands now. */
  position() {
    if (!isSokoban(this.task)) return { ...this.task, start: this.cells[0] };
    return { level: makeLevel(this.size.width, this.size.height, { ...this.layout, cells: this.cells }) };
  }

  async hint() {
    if (this.solved) return;
    try {
      const plan = await post("/api/plan", { task: this.position() });
      if (!plan.solvable) return this.draw("From here it cannot be solved any more: undo.");
      this.hinted++;
      this.move(plan.moves[0]);
      if (!this.solved) this.draw(`Hint: ${plan.moves.length - 1} more moves are enough from here.`);
    } catch (error) { this.draw(error.message); }
  }

  draw(message) {
    const moves = this.history.length - 1;
    this.onMove(this.letters.join(""));
    this.board.show({ task: this.task, cells: this.cells, search: null });
    this.root.querySelector("[data-out=moves]").textContent = moves;
    this.root.querySelector("[data-out=best]").textContent = this.best ?? "–";
    this.root.querySelector("[data-do=undo]").disabled = moves === 0;
    this.root.classList.toggle("solved", this.solved);
    const hints = this.hinted ? ` (${this.hinted} of them hints)` : "";
    const verdict = this.best === null ? "" : moves === this.best ? ", the optimum" : `, ${moves - this.best} more than the optimum`;
    this.status.textContent = this.solved ? `Solved in ${moves} moves${hints}${verdict}.` : message;
    this.canvas.setAttribute("aria-label", `You are at column ${this.cells[0][0]}, row ${this.cells[0][1]}, after ${moves} moves.`);
  }
}

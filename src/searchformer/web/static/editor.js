// Draw on a board: drag walls, start and goal, boxes and docks; with the pointer, or with arrow keys and letters.
import { cellKey, isSokoban, layoutOf, makeLevel, sizeOf } from "./grid.js";

export const TOOLS = {
  wall: "Wall", floor: "Floor", box: "Box", dock: "Dock", worker: "Worker",
};

/** The key of an event; a letter is the same with caps lock. */
export const keyOf = (event) => (event.key.length === 1 ? event.key.toLowerCase() : event.key);

const same = (a, b) => a[0] === b[0] && a[1] === b[1];

/** The maze with a wall drawn or erased at a cell; start and goal are never walled in. */
export function withWall(task, cell, wall) {
  if (same(cell, task.start) || same(cell, task.goal)) return task;
  const others = task.walls.filter((each) => !same(each, cell));
  return { ...task, walls: wall ? [...others, cell] : others };
}

/** The maze with start or goal moved to a free cell. */
export function withEnd(task, which, cell) {
  const other = which === "start" ? task.goal : task.start;
  if (same(cell, other) || task.walls.some((wall) => same(wall, cell))) return task;
  return { ...task, [which]: cell };
}

/** The level with a tool used at a cell. */
export function withTool(task, cell, tool) {
  const size = sizeOf(task), layout = layoutOf(task), at = cellKey(cell);
  const [worker, ...boxes] = layout.cells;
  const others = boxes.filter((box) => cellKey(box) !== at);
  const hasBox = others.length < boxes.length, hasWorker = cellKey(worker) === at;
  if (tool !== "dock") layout.walls.delete(at);
  let cells = [worker, ...others];
  if (tool === "wall" && !hasWorker) { layout.walls.add(at); layout.docks.delete(at); }
  else if (tool === "floor") layout.docks.delete(at);
  else if (tool === "box" && !hasWorker) cells = hasBox ? cells : [worker, ...others, cell];
  else if (tool === "worker" && !hasBox) cells = [cell, ...others];
  else if (tool === "dock") {
    layout.walls.delete(at);
    if (!layout.docks.delete(at)) layout.docks.add(at);
    cells = layout.cells;
  } else return task;
  return { level: makeLevel(size.width, size.height, { ...layout, cells }) };
}

export class Editor {
  /** `current()` gives the task, `change(task, done)` takes a new one; `done` at the end of a gesture. */
  constructor(board, { current, change, tool }) {
    Object.assign(this, { board, current, change, tool });
    this.cursor = [0, 0];
    const { canvas } = board;
    canvas.tabIndex = 0;
    canvas.classList.add("editable");
    canvas.setAttribute("role", "application");
    canvas.addEventListener("mousedown", (event) => event.preventDefault());  // the focus is for those who draw with keys
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => this.end());
    canvas.addEventListener("keydown", (event) => this.press(event));
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) this.board.show({ cursor: this.cursor }); });
    canvas.addEventListener("blur", () => this.board.show({ cursor: null }));
  }

  begin(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    document.activeElement?.blur();
    this.board.canvas.setPointerCapture(event.pointerId);
    const task = this.current(), cell = this.board.cellAt(event);
    this.last = null;
    if (isSokoban(task)) this.gesture = (now, at) => withTool(now, at, this.tool());
    else if (same(cell, task.start)) this.gesture = (now, at) => withEnd(now, "start", at);
    else if (same(cell, task.goal)) this.gesture = (now, at) => withEnd(now, "goal", at);
    else {
      const draw = !task.walls.some((wall) => same(wall, cell));
      this.gesture = (now, at) => withWall(now, at, draw);
    }
    this.drag(event);
  }

  drag(event) {
    if (!this.gesture) return;
    const cell = this.board.cellAt(event);
    if (this.last && same(this.last, cell)) return;
    this.last = cell;
    this.apply(this.gesture(this.current(), cell), false);
  }

  end() {
    if (!this.gesture) return;
    this.gesture = null;
    if (this.changed) this.change(this.current(), true);
    this.changed = false;
  }

  apply(task, done) {
    if (task === this.current()) return;
    this.changed = !done;
    this.change(task, done);
  }

  press(event) {
    const { width, height } = sizeOf(this.current());
    const steps = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const [x, y] = this.cursor, step = steps[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) this.cursor = [Math.min(Math.max(x + step[0], 0), width - 1), Math.min(Math.max(y + step[1], 0), height - 1)];
    else if (!this.pressTool(keyOf(event))) return;
    event.preventDefault();
    event.stopPropagation();
    this.board.show({ cursor: this.cursor });
  }

  pressTool(key) {
    const task = this.current(), at = this.cursor;
    if (isSokoban(task)) {
      const tools = { " ": this.tool(), w: "wall", f: "floor", b: "box", d: "dock", p: "worker" };
      if (!tools[key]) return false;
      this.apply(withTool(task, at, tools[key]), true);
    } else if (key === " " || key === "w") {
      this.apply(withWall(task, at, !task.walls.some((wall) => same(wall, at))), true);
    } else if (key === "s" || key === "g") {
      this.apply(withEnd(task, key === "s" ? "start" : "goal", at), true);
    } else return false;
    return true;
  }
}

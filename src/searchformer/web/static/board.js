// A task and the state of a search, drawn on a canvas. All colours come from the style sheet.
import { cellKey, isSokoban, layoutOf, sizeOf } from "./grid.js";

/** Where a step's tokens end: at the next step, or while more is being written, at the next keyword. */
export function stepEnd(search, number) {
  if (number + 1 < search.steps.length) return search.steps[number + 1].at;
  const begun = search.tokens.findIndex((token, at) => at > search.steps[number].at && ["create", "close", "plan"].includes(token));
  return begun < 0 ? search.tokens.length : begun;
}

/** What a search has done after `count` of its steps: nodes by state, the current step, the plan so far, marks, tokens of search. */
export function searchState(search, count) {
  const nodes = new Map(), plan = [], wrong = [];
  let closed = 0, created = 0, current = null, traceEnd = Infinity;
  const shown = search ? Math.min(count, search.steps.length) : 0;
  for (let number = 0; number < shown; number++) {
    const step = search.steps[number];
    current = step;
    if (step.wrong) wrong.push(step);
    if (step.kind === "plan") traceEnd = Math.min(traceEnd, step.at);
    if (!step.cells.length) continue;
    if (step.kind === "plan") { plan.push(step.cells); continue; }
    const name = step.cells.map(cellKey).join(" ");
    if (step.kind === "close") nodes.set(name, { cell: step.cells[0], closed: true, order: closed++ });
    else { created++; nodes.set(name, { cell: step.cells[0], closed: false, order: -1 }); }
  }
  const tokens = current ? Math.min(stepEnd(search, shown - 1), traceEnd) : 0;
  return { nodes, plan, wrong, closed, created, current, tokens, finished: search ? shown === search.steps.length : false };
}

/** Why a step is marked; nothing if it is not. */
export function wrongText(step) {
  if (!step?.wrong) return "";
  return step.unsound ? `unsound: ${step.wrong}` : `not A*'s order: ${step.wrong}`;
}

function palette() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  return Object.fromEntries(["floor", "line", "wall", "start", "goal", "frontier", "frontier-edge", "early", "late", "current",
    "plan", "plan-casing", "wrong", "right", "box", "box-done", "dock", "ink", "look", "cursor"].map((name) => [name, named(name)]));
}

function mixColours(from, to, share) {
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const [a, b] = [parse(from), parse(to)];
  return `rgb(${a.map((value, at) => Math.round(value + (b[at] - value) * share)).join(" ")})`;
}

export class Board {
  constructor(canvas) {
    this.canvas = canvas;
    this.view = { task: null, search: null, count: 0 };
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
  }

  /** Show a task; `view` may have search, count, cells, looks (cell weights), hover (cell), cursor (cell). */
  show(view) {
    this.view = { ...this.view, ...view };
    this.draw();
  }

  /** The cell below a pointer. */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { width, height } = sizeOf(this.view.task);
    const x = Math.floor((event.clientX - box.left) / box.width * width);
    const y = Math.floor((event.clientY - box.top) / box.height * height);
    return [Math.min(Math.max(x, 0), width - 1), Math.min(Math.max(y, 0), height - 1)];
  }

  draw() {
    const { task } = this.view;
    if (!task) return;
    const { width, height } = sizeOf(task);
    const room = this.canvas.parentElement.clientWidth;
    const side = Math.max(6, Math.floor(Math.min(room / width, Math.max(room, 200) / height)));
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.canvas.style.width = `${side * width}px`;
    this.canvas.style.height = `${side * height}px`;
    this.canvas.width = side * width * ratio;
    this.canvas.height = side * height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    this.paint(context, side, palette());
  }

  paint(context, side, colours) {
    const { task, search, count, looks, hover, cursor } = this.view;
    const { width, height } = sizeOf(task);
    const layout = layoutOf(task), state = searchState(search, count);
    const middle = ([x, y]) => [(x + 0.5) * side, (y + 0.5) * side];
    const tile = ([x, y], inset, colour) => {
      context.fillStyle = colour;
      context.beginPath();
      context.roundRect(x * side + inset, y * side + inset, side - 2 * inset, side - 2 * inset, Math.max(1, side * 0.1));
      context.fill();
    };
    context.fillStyle = colours.floor;
    context.fillRect(0, 0, width * side, height * side);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = 1; x < width; x++) { context.moveTo(x * side, 0); context.lineTo(x * side, height * side); }
    for (let y = 1; y < height; y++) { context.moveTo(0, y * side); context.lineTo(width * side, y * side); }
    context.stroke();

    const gap = Math.max(0.5, side * 0.04);
    for (const wall of layout.walls) tile(wall.split(",").map(Number), side > 14 ? gap / 2 : 0, colours.wall);
    this.paintNodes(context, state, { side, gap, colours, tile });
    for (const dock of layout.docks) this.paintDock(context, dock.split(",").map(Number), side, colours);
    if (looks) this.paintLooks(looks, { tile, colours, context, gap });
    if (state.plan.length) this.paintPlan(context, state.plan.map((cells) => middle(cells[0])), side, colours);

    const placed = this.view.cells ?? (isSokoban(task) && state.current?.cells.length ? state.current.cells : layout.cells);
    if (isSokoban(task)) {
      for (const box of placed.slice(1)) this.paintBox(context, box, side, layout.docks.has(cellKey(box)), colours);
      this.paintWorker(context, middle(placed[0]), side, colours);
    } else {
      this.paintGoal(context, middle(layout.goal), side, colours);
      context.globalAlpha = this.view.cells ? 0.3 : 1;  // in a game, the start is where the walker was
      this.paintDisc(context, middle(layout.cells[0]), side * 0.27, colours.start);
      context.globalAlpha = 1;
      if (this.view.cells) this.paintWorker(context, middle(placed[0]), side, colours);
    }
    const marked = new Map();
    for (const step of state.wrong) if (step.cells.length && !marked.get(cellKey(step.cells[0]))?.unsound) marked.set(cellKey(step.cells[0]), step);
    for (const step of marked.values()) {
      context.globalAlpha = step === state.current || state.wrong.length < 4 ? 1 : 0.6;
      if (step.unsound) this.paintUntrue(context, middle(step.cells[0]), side, colours);
      else this.paintDisorder(context, step.cells[0], side, colours);
    }
    context.globalAlpha = 1;
    if (state.current?.cells.length && !state.finished && state.current.kind !== "plan") {
      this.paintRing(context, state.current.cells[0], side, colours.current, 0.09);
    }
    if (hover) for (const cell of hover) this.paintRing(context, cell, side, colours.ink, 0.06);
    if (cursor) this.paintRing(context, cursor, side, colours.cursor, 0.05, [4, 3]);
  }

  paintNodes(context, state, { side, gap, colours, tile }) {
    const cells = new Map();
    for (const node of state.nodes.values()) {
      const at = cells.get(cellKey(node.cell)) ?? { cell: node.cell, order: -1, open: 0, closed: 0 };
      if (node.closed) { at.closed++; at.order = Math.max(at.order, node.order); } else at.open++;
      cells.set(cellKey(node.cell), at);
    }
    for (const { cell, order, open, closed } of cells.values()) {
      if (closed) tile(cell, gap, mixColours(colours.early, colours.late, state.closed < 2 ? 0 : order / (state.closed - 1)));
      else tile(cell, gap, colours.frontier);
      if (open) {
        context.strokeStyle = colours["frontier-edge"];
        context.lineWidth = Math.max(1, side * 0.05);
        context.beginPath();
        const inset = gap + context.lineWidth / 2;
        context.roundRect(cell[0] * side + inset, cell[1] * side + inset, side - 2 * inset, side - 2 * inset, side * 0.1);
        context.stroke();
      }
    }
  }

  paintLooks(looks, { tile, colours, context, gap }) {
    const most = Math.max(...looks.map(({ weight }) => weight), 1e-9);
    for (const { cell, weight } of looks) {
      context.globalAlpha = 0.85 * Math.sqrt(weight / most);
      tile(cell, gap, colours.look);
    }
    context.globalAlpha = 1;
  }

  paintPlan(context, points, side, colours) {
    context.lineJoin = context.lineCap = "round";
    for (const [colour, width] of [[colours["plan-casing"], 0.3], [colours.plan, 0.17]]) {
      context.strokeStyle = colour;
      context.lineWidth = side * width;
      context.beginPath();
      points.forEach(([x, y], at) => (at ? context.lineTo(x, y) : context.moveTo(x, y)));
      if (points.length === 1) context.lineTo(...points[0]);
      context.stroke();
    }
  }

  paintDisc(context, [x, y], radius, colour) {
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fill();
  }

  paintGoal(context, [x, y], side, colours) {
    context.strokeStyle = colours.goal;
    context.lineWidth = side * 0.1;
    context.beginPath();
    context.arc(x, y, side * 0.25, 0, 7);
    context.stroke();
    this.paintDisc(context, [x, y], side * 0.1, colours.goal);
  }

  paintDock(context, [x, y], side, colours) {
    context.save();
    context.translate((x + 0.5) * side, (y + 0.5) * side);
    context.rotate(Math.PI / 4);
    context.strokeStyle = colours.dock;
    context.lineWidth = Math.max(1.5, side * 0.07);
    const half = side * 0.2;
    context.strokeRect(-half, -half, 2 * half, 2 * half);
    context.restore();
  }

  paintBox(context, [x, y], side, done, colours) {
    const inset = side * 0.16, length = side - 2 * inset;
    context.fillStyle = done ? colours["box-done"] : colours.box;
    context.beginPath();
    context.roundRect(x * side + inset, y * side + inset, length, length, side * 0.1);
    context.fill();
    context.strokeStyle = colours["plan-casing"];
    context.lineWidth = Math.max(1, side * 0.04);
    context.beginPath();
    context.moveTo(x * side + inset * 1.6, y * side + inset * 1.6);
    context.lineTo((x + 1) * side - inset * 1.6, (y + 1) * side - inset * 1.6);
    context.moveTo((x + 1) * side - inset * 1.6, y * side + inset * 1.6);
    context.lineTo(x * side + inset * 1.6, (y + 1) * side - inset * 1.6);
    context.stroke();
  }

  paintWorker(context, [x, y], side, colours) {
    this.paintDisc(context, [x, y], side * 0.3, colours["plan-casing"]);
    this.paintDisc(context, [x, y], side * 0.25, colours.start);
    for (const offset of [-0.09, 0.09]) this.paintDisc(context, [x + side * offset, y - side * 0.05], side * 0.045, colours["plan-casing"]);
  }

  /** True, but not in A*'s order: a corner, which says less than a cross. */
  paintDisorder(context, [x, y], side, colours) {
    const [right, top] = [(x + 1) * side - side * 0.1, y * side + side * 0.1], length = side * 0.24;
    context.fillStyle = colours.right;
    context.beginPath();
    context.moveTo(right, top);
    context.lineTo(right - length, top);
    context.lineTo(right, top + length);
    context.fill();
  }

  paintUntrue(context, [x, y], side, colours) {
    const arm = side * 0.15;
    context.strokeStyle = colours.wrong;
    context.lineCap = "round";
    context.lineWidth = Math.max(1.5, side * 0.08);
    context.beginPath();
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x + arm, y - arm);
    context.lineTo(x - arm, y + arm);
    context.stroke();
  }

  paintRing(context, [x, y], side, colour, width, dash = []) {
    const inset = side * width / 2 + 0.5;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1.5, side * width);
    context.setLineDash(dash);
    context.beginPath();
    context.roundRect(x * side + inset, y * side + inset, side - 2 * inset, side - 2 * inset, side * 0.12);
    context.stroke();
    context.setLineDash([]);
  }
}

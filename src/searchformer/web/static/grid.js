// Tasks and cells: what stands where, and a task as text for a link. No drawing, no network.

export const cellKey = (cell) => `${cell[0]},${cell[1]}`;
export const isSokoban = (task) => "level" in task;

export function sizeOf(task) {
  if (!isSokoban(task)) return { width: task.width, height: task.height };
  return { width: Math.max(...task.level.map((row) => row.length)), height: task.level.length };
}

/** Walls, docks, and where the walker or worker (first) and the boxes are at the start. */
export function layoutOf(task) {
  const walls = new Set(), docks = new Set();
  if (!isSokoban(task)) {
    for (const wall of task.walls) walls.add(cellKey(wall));
    return { walls, docks, cells: [task.start], goal: task.goal };
  }
  let worker = null;
  const boxes = [];
  task.level.forEach((row, y) => [...row].forEach((mark, x) => {
    if (mark === "#") walls.add(cellKey([x, y]));
    if (".+*".includes(mark)) docks.add(cellKey([x, y]));
    if ("@+".includes(mark)) worker = [x, y];
    if ("$*".includes(mark)) boxes.push([x, y]);
  }));
  return { walls, docks, cells: [worker ?? [0, 0], ...boxes], goal: null };
}

/** A level from what stands where: the opposite of `layoutOf`. */
export function makeLevel(width, height, { walls, docks, cells }) {
  const [worker, ...boxes] = cells;
  const boxAt = new Set(boxes.map(cellKey));
  return Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => {
    const at = cellKey([x, y]), dock = docks.has(at);
    if (walls.has(at)) return "#";
    if (boxAt.has(at)) return dock ? "*" : "$";
    if (worker && cellKey(worker) === at) return dock ? "+" : "@";
    return dock ? "." : " ";
  }).join(""));
}

/** A task as short text for a link, and back. */
export function encodeTask(task) {
  if (isSokoban(task)) return "k" + task.level.map((row) => row.trimEnd().replaceAll(" ", "-")).join("|");
  const bits = Array(task.width * task.height).fill(0);
  for (const [x, y] of task.walls) bits[y * task.width + x] = 1;
  let hex = "";
  for (let at = 0; at < bits.length; at += 4) hex += parseInt(bits.slice(at, at + 4).join("").padEnd(4, "0"), 2).toString(16);
  return `m${task.width}.${task.height}.${task.start.join(".")}.${task.goal.join(".")}.${hex}`;
}

export function decodeTask(text) {
  if (text.startsWith("k")) return { level: text.slice(1).split("|").map((row) => row.replaceAll("-", " ")) };
  const parts = text.slice(1).split(".");
  const [width, height, startX, startY, goalX, goalY] = parts.slice(0, 6).map(Number);
  if (!text.startsWith("m") || parts.length !== 7 || parts.slice(0, 6).some((part) => !/^\d+$/.test(part))) {
    throw new Error("this link holds no task");
  }
  const bits = [...parts[6]].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
  const walls = [];
  for (let at = 0; at < width * height; at++) if (bits[at] === "1") walls.push([at % width, Math.floor(at / width)]);
  return { width, height, start: [startX, startY], goal: [goalX, goalY], walls };
}

export const STEPS = { u: [0, -1], d: [0, 1], l: [-1, 0], r: [1, 0] };

/** One move in the rules of the task: the new cells, or null if it is not possible. */
export function moveCells(layout, size, cells, letter) {
  const [dx, dy] = STEPS[letter.toLowerCase()];
  const free = ([x, y]) => x >= 0 && y >= 0 && x < size.width && y < size.height && !layout.walls.has(cellKey([x, y]));
  const target = [cells[0][0] + dx, cells[0][1] + dy];
  if (!free(target)) return null;
  const boxes = cells.slice(1);
  const pushed = boxes.findIndex((box) => cellKey(box) === cellKey(target));
  if (pushed >= 0) {
    const beyond = [target[0] + dx, target[1] + dy];
    if (!free(beyond) || boxes.some((box) => cellKey(box) === cellKey(beyond))) return null;
    boxes[pushed] = beyond;
  }
  return [target, ...boxes];
}

export function isSolved(layout, cells) {
  if (layout.goal) return cellKey(cells[0]) === cellKey(layout.goal);
  return cells.length > 1 && cells.slice(1).every((box) => layout.docks.has(cellKey(box)));
}

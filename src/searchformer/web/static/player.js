// The one timeline: play, pause, step, scrub, speed. It knows how many steps there are and says when the place changes.

export class Player {
  constructor(root, onChange) {
    this.onChange = onChange;
    this.count = 0;
    this.total = 0;
    this.playing = false;
    this.controls = Object.fromEntries(["first", "back", "toggle", "forward", "last", "scrub", "speed", "where"].map(
      (name) => [name, root.querySelector(`[data-player=${name}]`)]));
    const { first, back, toggle, forward, last, scrub, speed } = this.controls;
    first.onclick = () => this.seek(0);
    back.onclick = () => this.seek(this.count - 1);
    toggle.onclick = () => this.toggle();
    forward.onclick = () => this.seek(this.count + 1);
    last.onclick = () => this.seek(this.total);
    scrub.oninput = () => this.seek(Number(scrub.value));
    speed.onchange = () => { if (this.playing) this.play(); };
    this.refresh();
  }

  setTotal(total) {
    this.total = total;
    if (this.count > total) this.count = total;
    this.refresh();
  }

  seek(count, { keepPlaying = false } = {}) {
    if (!keepPlaying) this.pause();
    this.count = Math.min(Math.max(Math.round(count), 0), this.total);
    this.refresh();
    this.onChange(this.count);
  }

  toggle() { return this.playing ? this.pause() : this.play(); }

  play() {
    if (this.count >= this.total) this.count = 0;
    this.playing = true;
    this.began = performance.now();
    this.from = this.count;
    cancelAnimationFrame(this.frame);
    const perSecond = Number(this.controls.speed.value);
    const tick = (now) => {
      if (!this.playing) return;
      const count = this.from + (now - this.began) / 1000 * perSecond;
      if (Math.floor(count) !== this.count) this.seek(Math.floor(count), { keepPlaying: true });
      if (this.count >= this.total) return this.pause();
      this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
    this.refresh();
  }

  pause() {
    this.playing = false;
    this.refresh();
  }

  refresh() {
    const { toggle, scrub, where, first, back, forward, last } = this.controls;
    toggle.dataset.playing = this.playing;
    toggle.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    scrub.max = this.total;
    scrub.value = this.count;
    scrub.style.setProperty("--done", `${this.total ? 100 * this.count / this.total : 0}%`);
    scrub.setAttribute("aria-valuetext", `step ${this.count} of ${this.total}`);
    where.textContent = `${this.count} / ${this.total}`;
    first.disabled = back.disabled = this.count === 0;
    forward.disabled = last.disabled = this.count >= this.total;
  }
}

/** Whether a key that was pressed belongs to a field or a button rather than to the page. */
export function isTaken(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  const field = event.target.closest("input, select, textarea, [role=application]");
  if (field) return event.key !== " " || field.type !== "range";
  return event.key === " " && event.target.closest("button, a") !== null;
}

/** What keys do to a timeline. */
export const timelineKeys = (player) => ({
  " ": () => player.toggle(), ArrowRight: () => player.seek(player.count + 1), ArrowLeft: () => player.seek(player.count - 1),
  Home: () => player.seek(0), End: () => player.seek(player.total),
});

const SYMBOLS = {
  first: "M6 5v14M19 5l-9 7 9 7z", back: "M16 5l-9 7 9 7z", forward: "M8 5l9 7-9 7z", last: "M18 5v14M5 5l9 7-9 7z",
};

function playerButton(name, label, content) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.player = name;
  button.setAttribute("aria-label", label);
  button.title = label;
  button.append(content);
  return button;
}

function symbol(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

/** The controls of a player, made once for the page and for replays. */
export function playerControls() {
  const root = document.createElement("div");
  root.className = "transport";
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Timeline");
  const play = playerButton("toggle", "Play", symbol("M7 4l13 8-13 8z"));
  play.append(symbol("M7 4h4v16H7zM14 4h4v16h-4z"));
  const scrub = document.createElement("input");
  Object.assign(scrub, { type: "range", min: 0, max: 0, value: 0 });
  scrub.dataset.player = "scrub";
  scrub.setAttribute("aria-label", "Step");
  const speed = document.createElement("select");
  speed.dataset.player = "speed";
  speed.title = "Steps per second";
  speed.setAttribute("aria-label", speed.title);
  for (const perSecond of [2, 6, 12, 25, 60, 200]) speed.add(new Option(`${perSecond}/s`, perSecond, perSecond === 12, perSecond === 12));
  const where = document.createElement("output");
  where.dataset.player = "where";
  root.append(playerButton("first", "To the beginning", symbol(SYMBOLS.first)), playerButton("back", "One step back", symbol(SYMBOLS.back)),
    play, playerButton("forward", "One step on", symbol(SYMBOLS.forward)), playerButton("last", "To the end", symbol(SYMBOLS.last)), scrub, where, speed);
  return root;
}

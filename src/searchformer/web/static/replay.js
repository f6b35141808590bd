// A replay without a server: the page that `/api/replay` makes holds this and its data.
import { Duel, element } from "./duel.js";
import { isSokoban } from "./grid.js";
import { isTaken, timelineKeys } from "./player.js";

function startReplay(root, data) {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const title = element("h1", "", `${data.left.who} and ${data.right.who} search the same ${isSokoban(data.task) ? "Sokoban level" : "maze"}`);
  const stage = element("div", "stage");
  root.append(title, stage);
  const duel = new Duel(stage);
  stage.append(duel.streams);
  for (const side of ["left", "right"]) duel.setName(side, data[side].who);
  duel.setTask(data.task);
  duel.setSearch("left", data.left);
  duel.setSearch("right", data.right);
  document.addEventListener("keydown", (event) => {
    const keys = timelineKeys(duel.player);
    if (!isTaken(event) && keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}

const replayData = document.getElementById("replay-data");
if (replayData) startReplay(document.getElementById("replay"), JSON.parse(replayData.textContent));

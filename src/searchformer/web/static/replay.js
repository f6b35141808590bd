// A replay without a server: the page that `/api/replay` makes holds this and its data.
import { Duel, element } from "./duel.js";

function startReplay(root, data) {
  const title = element("h1", "", "The same task, two searches");
  const stage = element("div", "stage");
  root.append(title, stage);
  const duel = new Duel(stage);
  stage.append(duel.streams);
  for (const side of ["left", "right"]) duel.cards[side].name.textContent = data[side].who;
  duel.setTask(data.task);
  duel.setSearch("left", data.left);
  duel.setSearch("right", data.right);
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, button")) return;
    const keys = { " ": () => duel.player.toggle(), ArrowRight: () => duel.player.seek(duel.player.count + 1), ArrowLeft: () => duel.player.seek(duel.player.count - 1) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
}

const replayData = document.getElementById("replay-data");
if (replayData) startReplay(document.getElementById("replay"), JSON.parse(replayData.textContent));

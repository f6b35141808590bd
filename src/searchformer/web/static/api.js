// The server's interface: JSON requests, and a stream of a model's answers.

async function readReply(reply) {
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => ({}));
  throw new Error(problem.detail ?? `the server says ${reply.status}`);
}

async function request(path, settings) {
  let reply;
  try { reply = await fetch(path, settings); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is `searchformer serve` still running?");
  }
  return readReply(reply);
}

export const get = async (path) => (await request(path)).json();

const posted = (value, signal) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value), signal });
export const post = async (path, value, { signal } = {}) => (await request(path, posted(value, signal))).json();
export const postForText = async (path, value) => (await request(path, posted(value))).text();

/** Ask a model. `on` has begin, queue, tokens, answer, done, error. Returns a function that stops the work. */
export function ask(question, on) {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/ask`);
  let over = false;
  const finish = (reason) => { if (!over) { over = true; if (reason) on.error?.(reason); } };
  socket.onopen = () => socket.send(JSON.stringify(question));
  socket.onmessage = (event) => {
    if (over) return;
    const message = JSON.parse(event.data);
    if (message.type === "error") finish(message.reason);
    else if (message.type === "done") { over = true; on.done?.(); }
    else on[message.type]?.(message);
  };
  socket.onclose = () => finish("the connection to the server was lost");
  return () => { over = true; socket.close(); };
}

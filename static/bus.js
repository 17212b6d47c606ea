// What the agents of a viber report, as it comes: one line each, newest first. Texts are set as texts, never as markup.
(() => {
  "use strict";
  const list = document.getElementById("bus");
  if (!list?.dataset.source) return;
  const state = document.getElementById("bus-state");
  const MAX_LINES = 300;
  const MAX_CHARS = 400;
  const agents = new Map(); // by task
  let last; // the line that a delta may grow

  const cell = (text, name) => {
    const span = document.createElement("span");
    if (name) span.className = name;
    span.textContent = text;
    return span;
  };
  const cut = (text) => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text);
  const words = (event) => {
    const told = event.event ?? event;
    const text = told.content ?? told.text ?? told.goal ?? told.message?.text ?? told.error?.message ?? told.summary;
    const tool = typeof told.tool === "string" ? told.tool : "";
    return cut([tool, typeof text === "string" ? text : ""].filter(Boolean).join(" "));
  };
  const add = (frame) => {
    const { taskId, attempt, event } = JSON.parse(frame.data);
    const kind = event.event?.type ?? String(event.type ?? "").replace(/^task:/, "");
    const text = words(event);
    const key = `${taskId}:${attempt}:${kind}`;
    if (last && last.key === key && /-delta$|^tool-output$/.test(kind)) {
      last.said.textContent = cut(last.said.textContent + text);
      return;
    }
    const line = document.createElement("li");
    const at = new Date(event.at ?? Date.now());
    const time = document.createElement("time");
    time.className = "meta";
    if (!Number.isNaN(at.getTime())) {
      time.dateTime = at.toISOString();
      time.textContent = at.toLocaleTimeString();
    }
    const said = cell(text);
    line.append(time, cell(agents.get(taskId) ?? taskId, "meta"), cell(kind, "mono"), said);
    list.prepend(line);
    while (list.children.length > MAX_LINES) list.lastElementChild.remove();
    last = { key, said };
  };

  const address = new URL(list.dataset.source, location.href);
  if (list.dataset.agent) address.searchParams.set("agent", list.dataset.agent);
  const source = new EventSource(address);
  const types = ["accepted", "started", "progress", "completed", "error", "stopped", "waiting", "resumed", "announce"];
  types.forEach((type) => source.addEventListener(`task:${type}`, add));
  source.addEventListener("unknown", add);
  source.addEventListener("task", (frame) => {
    const task = JSON.parse(frame.data);
    agents.set(task.id ?? task.taskId, task.agentId ?? "");
  });
  source.addEventListener("end", () => {
    source.close();
    state.textContent = "ended: load the page again";
  });
  source.addEventListener("open", () => (state.textContent = "from now on, newest first"));
  source.addEventListener("error", () => (state.textContent = "no contact with the Board"));
})();

// What the agents of a viber report, as it comes: one line each, newest first. Texts are set as texts, never as markup.
(() => {
  "use strict";
  const list = document.getElementById("bus");
  if (!list?.dataset.source) return;
  const state = document.getElementById("bus-state");
  const nothing = document.getElementById("bus-nothing");
  const MAX_LINES = 300;
  const MAX_CHARS = 400;
  // What a kind of report is called; those that say nothing to a reader are left out.
  const WORDS = {
    "text-delta": "Says", "reasoning-delta": "Reasons", "tool-call": "Calls", "tool-output": "Output", "tool-result": "Result",
    "state-change": "State", plan: "Plan", artifact: "Artifact", notice: "Notice", "approval-required": "Asks",
    "approval-decided": "Decided", delegate: "Asks for a task", accepted: "Accepted", started: "Started", completed: "Done",
    error: "Failed", stopped: "Stopped", waiting: "Waits", resumed: "Goes on",
  };
  const SILENT = new Set(["context", "usage", "step"]);
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const agents = new Map(); // by task
  const growing = new Map(); // the newest line of each task: what it says next belongs to it
  if (nothing) nothing.hidden = false;

  const cell = (text, name) => {
    const span = document.createElement("span");
    if (name) span.className = name;
    span.textContent = text;
    return span;
  };
  const cut = (text) => (text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text);
  const end = (text) => (text.length > MAX_CHARS ? `…${text.slice(-MAX_CHARS)}` : text);
  const json = (value) => (value && typeof value === "object" && Object.keys(value).length ? JSON.stringify(value) : "");
  const words = (told, kind) => {
    const tool = typeof told.tool === "string" ? told.tool.replace(/^mcp__(.+?)__(.+)$/, "$1: $2") : "";
    const result = told.result?.output ?? told.result?.text ?? told.result;
    const args = told.args?.command ?? told.args?.path ?? told.args?.goal ?? json(told.args);
    const state = kind === "state-change" ? told.state : undefined;
    const texts = [told.content, told.text, told.goal, told.message?.text, told.error?.message, told.summary, told.artifact?.title, state];
    const said = texts.concat(result, args).find((text) => typeof text === "string" && text);
    return cut([tool, said].filter(Boolean).join(" "));
  };
  const tone = (told, kind) =>
    kind === "error" || (kind === "tool-result" && told.ok === false) ? "fail" : kind === "approval-required" ? "wait" : "";
  const add = (frame) => {
    const { taskId, attempt, event } = JSON.parse(frame.data);
    const told = event.event ?? event;
    const kind = event.event?.type ?? String(event.type ?? "").replace(/^task:/, "");
    if (SILENT.has(kind)) return;
    const text = words(told, kind);
    const key = `${attempt}:${kind}`;
    const last = growing.get(taskId);
    if (last?.key === key && last.said.isConnected && /-delta$|^tool-output$/.test(kind)) {
      last.said.textContent = end(last.said.textContent + text);
      return;
    }
    const line = document.createElement("li");
    if (tone(told, kind)) line.dataset.tone = tone(told, kind);
    const at = new Date(event.at ?? Date.now());
    const time = document.createElement("time");
    time.className = "meta";
    if (!Number.isNaN(at.getTime())) {
      time.dateTime = at.toISOString();
      time.textContent = clock.format(at);
    }
    const said = cell(text);
    line.append(time, cell(agents.get(taskId) ?? taskId, "meta"), cell(Object.hasOwn(WORDS, kind) ? WORDS[kind] : kind, "what"), said);
    list.prepend(line);
    nothing?.remove();
    while (list.children.length > MAX_LINES) list.lastElementChild.remove();
    growing.set(taskId, { key, said });
  };

  const address = new URL(list.dataset.source, location.href);
  if (list.dataset.agent) address.searchParams.set("agent", list.dataset.agent);
  const types = ["accepted", "started", "progress", "completed", "error", "stopped", "waiting", "resumed", "announce"];
  const RETRY = 5_000;
  const open = () => {
    const source = new EventSource(address);
    types.forEach((type) => source.addEventListener(`task:${type}`, add));
    source.addEventListener("unknown", add);
    source.addEventListener("task", (frame) => {
      const task = JSON.parse(frame.data);
      agents.set(task.id ?? task.taskId, task.agentId ?? "");
    });
    source.addEventListener("over", (frame) => growing.delete(JSON.parse(frame.data).taskId));
    source.addEventListener("end", () => {
      source.close();
      state.textContent = "ended: load the page again";
    });
    source.addEventListener("open", () => (state.textContent = "from now on, newest first"));
    source.addEventListener("error", () => {
      state.textContent = "no contact with the Board";
      // The browser comes back by itself, but gives up after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, RETRY);
    });
  };
  open();

  // With a script the choice is enough.
  const form = document.getElementById("bus-agent");
  form?.addEventListener("change", () => form.requestSubmit());
  form?.querySelector("button")?.toggleAttribute("hidden", true);
})();

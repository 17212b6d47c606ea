// One stream for the tab shows what happens as it happens. A page that lost contact says so, and since when.
(() => {
  "use strict";
  const body = document.body;
  if (!body.dataset.stream || !window.EventSource) return;

  const HIDDEN = 60_000; // a tab nobody looks at gives its connection back
  const PATIENCE = 1_500; // a blink is not a loss
  let source, cursor = body.dataset.cursor || "", lostAt = 0, hiddenAt, retry, failures = 0, over = false;

  const state = (on) => {
    body.dataset.live = on ? "on" : "off";
    if (on) {
      lostAt = 0;
      failures = 0;
    } else if (!lostAt) lostAt = Date.now();
    tell();
  };
  // Contact: `.lost` and the rail's foot say since when there is none.
  const tell = () => {
    const lost = over || (lostAt && Date.now() - lostAt > PATIENCE);
    document.querySelectorAll(".live-off, .lost").forEach((el) => { el.hidden = !lost; });
    document.querySelectorAll(".live-on").forEach((el) => { el.hidden = body.dataset.live !== "on"; });
    body.toggleAttribute("data-lost", Boolean(lost));
    if (!lost) return;
    const age = window.board ? window.board.span(Date.now() - lostAt) : "";
    document.querySelectorAll("[data-lost-for]").forEach((el) => { el.textContent = over ? "now" : `for ${age}`; });
  };
  setInterval(() => { if (lostAt) tell(); }, 1000);

  const open = () => {
    clearTimeout(retry);
    if (source || over) return;
    const url = new URL(body.dataset.stream, location.href);
    if (cursor) url.searchParams.set("cursor", cursor);
    const seqs = [...document.querySelectorAll("#entries > article.message")].map((el) => Number(el.dataset.seq));
    if (seqs.length) url.searchParams.set("last", Math.max(...seqs));
    // A tab that opened by itself stays.
    const tab = document.getElementById("tabs")?.dataset.tab;
    if (tab && !url.searchParams.has("pane")) url.searchParams.set("shown", tab);
    const here = source = new EventSource(url);
    here.onopen = () => state(true);
    here.onerror = () => {
      if (here !== source) return;
      state(false);
      // The browser would send the newest id by itself, but gives up after a response that is not a stream.
      close();
      failures += 1;
      retry = setTimeout(open, Math.random() * Math.min(15_000, 500 * 2 ** failures));
    };
    for (const [name, act] of Object.entries({ log, region, nudge, reset, end })) {
      here.addEventListener(name, (event) => {
        if (here !== source) return;
        if (event.lastEventId) cursor = event.lastEventId;
        act(event.data);
      });
    }
  };
  const close = () => {
    source?.close();
    source = undefined;
  };

  const parse = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return [...template.content.children];
  };

  // A region is the whole current HTML of an element and replaces the one with its id.
  const region = (html) => {
    for (const fresh of parse(html)) {
      const old = document.getElementById(fresh.id);
      if (old && isHeld(old)) {
        held.set(fresh.id, { fresh, at: old });
        // The task goes on beside a message that is being changed.
        beside(old, fresh, "#task-state");
      }
      else if (old) put(old, fresh);
      else if (fresh.tagName === "TR" && !location.search) row(fresh);
      // What was added to a list stands behind what is there.
      else if (fresh.dataset.behind) document.getElementById(fresh.dataset.behind)?.after(fresh);
    }
  };
  // A form that is being filled in and a menu that is open stay as they are; the newest waiting update is applied afterwards.
  const held = new Map();
  const isHeld = (el) => {
    if (el.dataset.hold === undefined) return false;
    const at = el.contains(document.activeElement) ? document.activeElement : undefined;
    // A card is decided with what was written into it, whoever has the focus.
    const typed = (el.id === "asks" || el.dataset.hold === "typed") && [...el.querySelectorAll("textarea, input:not([type=checkbox], [type=radio], [type=hidden])")].some((one) => one.value !== one.defaultValue);
    return typed || at?.matches("textarea, select, input:not([type=checkbox], [type=radio])") || el.querySelector("details.menu[open]")
      || [...el.querySelectorAll("input[type=checkbox]")].some((box) => box.checked !== box.defaultChecked);
  };
  const beside = (old, fresh, place) => {
    const [shown, newer] = [old, fresh].map((region) => region.querySelector(place));
    if (!shown || !newer || shown.contains(document.activeElement)) return;
    const copy = newer.cloneNode(true);
    shown.replaceWith(copy);
    window.htmx?.process(copy);
  };
  // Why something was refused stays, with what was typed, until something else is sent.
  const keepRefused = (old, fresh) => {
    const why = old.querySelector(":scope > [role=alert]");
    if (!why) return;
    fresh.append(why.cloneNode(true));
    for (const one of old.querySelectorAll("form input[name]:not([type=hidden])")) {
      const form = [...fresh.querySelectorAll("form")].find((form) => form.getAttribute("action") === one.form.getAttribute("action"));
      form?.querySelector(`input[name="${one.name}"]:not([type=hidden])`)?.setAttribute("value", one.value);
    }
  };
  const put = (old, fresh) => {
    held.delete(fresh.id);
    if (old.dataset.hold === "typed") keepRefused(old, fresh);
    keeping(() => {
      if (/^(completed|error|stopped)$/.test(fresh.querySelector("#task-state")?.dataset.taskState)) nothingSaid();
      morph(old, fresh);
    });
  };
  // An answer that never began is none once its task has ended.
  const nothingSaid = () => {
    document.querySelectorAll("[data-open-message]").forEach((open) => {
      if (!open.querySelector(".message-body > :not(.message-head)")) open.remove();
    });
  };
  const release = () => setTimeout(() => {
    for (const [id, { fresh, at }] of held) {
      const old = document.getElementById(id);
      // What a form's answer put in its place is newer.
      if (old !== at) held.delete(id);
      else if (!isHeld(old)) put(old, fresh);
    }
  }, 300);
  for (const name of ["focusout", "toggle", "change"]) document.addEventListener(name, release, true);
  // In place, so that nothing moves under the pointer.
  const morph = (old, fresh) => {
    // Texts are changed in place, where nothing sees that a time among them is not the reader's yet.
    window.board?.times(fresh);
    if (old.isEqualNode(fresh)) return;
    // What htmx would take for its own tags is none of ours: in some browsers such words leave their attribute.
    const text = fresh.outerHTML;
    if (!window.htmx || fresh.tagName === "TR" || /<\/?(hx-|head[\s>])/i.test(text)) return replace(old, fresh);
    unfold(fresh, folds(old));
    window.htmx.swap({ target: old, text: fresh.outerHTML, swap: "outerMorph" });
  };
  const row = (fresh) => {
    const rows = document.querySelector("#fleet > tbody");
    rows ? rows.append(fresh) : location.reload();
  };
  // A choice depends on something that changed: it is fetched again.
  const nudge = (id) => {
    const select = document.querySelector(`#${CSS.escape(id)} select`);
    select?.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const replace = (old, fresh) => {
    const focus = old.contains(document.activeElement) && document.activeElement.dataset.focus;
    const scroll = old.scrollTop;
    unfold(fresh, folds(old));
    old.replaceWith(fresh);
    fresh.scrollTop = scroll;
    if (focus) fresh.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
    window.htmx?.process(fresh);
  };
  // What a reader opened or closed stays open or closed.
  const name = (fold) => fold.dataset.call || fold.dataset.lane || fold.dataset.beside || fold.id || fold.className;
  const folds = (root, known = new Map()) => {
    for (const fold of [root, ...root.querySelectorAll("details")]) {
      if (fold.dataset?.touched !== undefined) known.set(name(fold), fold.open);
    }
    return known;
  };
  const unfold = (root, known) => {
    for (const fold of [root, ...root.querySelectorAll("details")]) {
      if (!fold.matches("details") || !known.has(name(fold))) continue;
      fold.open = known.get(name(fold));
      fold.dataset.touched = "";
    }
  };

  // The log grows: by text in the open entry, by entries from one on, by whole messages.
  const log = (html) => {
    keeping(() => {
      for (const piece of parse(html)) apply(piece);
    });
  };
  const apply = (piece) => {
    if (piece.dataset.lanes) return lanes(piece);
    if (piece.matches("article.message")) return entry(piece);
    const open = openBody();
    if (!open) return;
    if (piece.dataset.output !== undefined) return output(open, piece);
    if (piece.dataset.words || piece.dataset.blocks) grow(open, piece);
  };
  // The message that is being written: the last one but for what was asked meanwhile.
  const openBody = () => {
    let message = document.getElementById("entries")?.lastElementChild;
    while (message && message.dataset.openMessage === undefined) message = message.previousElementSibling;
    return message?.querySelector(":scope > .message-body");
  };
  // A command's output grows by lines. Its end is followed unless its reader has scrolled up: then nothing that is being read
  // moves, and what is above stays until the reader is back.
  const MAX_HELD_LINES = 2_000;
  const output = (open, piece) => {
    const call = open.querySelector(`details[data-call="${CSS.escape(piece.dataset.output)}"]`);
    const [samp, foot] = [call?.querySelector(".out > samp"), call?.querySelector(".output > footer")];
    if (!samp) return;
    const pre = samp.parentElement;
    const away = pre.scrollTop < -8;
    const before = pre.scrollHeight;
    const whole = piece.dataset.whole !== undefined;
    if (!whole && samp.querySelectorAll(":scope > .now").length !== 1) return reset();
    if (whole) samp.replaceChildren();
    else samp.lastElementChild.remove();
    samp.append(...piece.childNodes);
    pre.dataset.keep = piece.dataset.keep;
    fit(pre, away ? MAX_HELD_LINES : 0);
    if (away) pre.scrollTop -= pre.scrollHeight - before;
    if (!foot) return;
    foot.hidden = false;
    foot.querySelector("[data-extent]").textContent = piece.dataset.says;
  };
  // Drops lines from the front that a reload would not show either, but for as many as are held for a reader.
  const fit = (pre, held) => {
    const samp = pre.firstElementChild;
    const most = Math.max(Number(pre.dataset.keep), held) + 1;
    for (let more = samp.childElementCount - most; more > 0; more -= 1) samp.firstElementChild.remove();
  };
  document.addEventListener("scroll", (event) => {
    const pre = event.target;
    if (!pre.matches?.(".out")) return;
    const away = pre.scrollTop < -8;
    pre.toggleAttribute("data-away", away);
    if (!away && pre.dataset.keep) fit(pre, 0);
  }, { capture: true, passive: true });
  // A group of calls that is sent again keeps what its reader had scrolled to.
  const scrolled = (root) => [...root.querySelectorAll("details[data-call] .out")].filter((pre) => pre.scrollTop < -8)
    .map((pre) => [pre.closest("details").dataset.call, pre.scrollTop, pre.scrollHeight]);
  const rescroll = (root, places) => {
    for (const [call, top, height] of places) {
      const pre = root.querySelector(`details[data-call="${CSS.escape(call)}"] .out`);
      if (pre) pre.scrollTop = top - Math.max(0, pre.scrollHeight - height); // what came is at its end
    }
  };

  // A text grows by words behind its last one, or by blocks: finished ones stay, the one that is being written is another.
  const grow = (open, piece) => {
    const lane = piece.dataset.words || piece.dataset.blocks;
    const text = [...open.querySelectorAll(`[data-open="${CSS.escape(lane)}"]`)].pop();
    if (text?.dataset.finished !== piece.dataset.from) return reset();
    const growing = text.lastElementChild?.matches(".growing") ? text.lastElementChild : undefined;
    if (piece.dataset.blocks) {
      growing?.remove();
      const fresh = piece.lastElementChild; // what is being written now
      fresh.remove();
      settle(text, piece);
      text.append(fresh);
      text.dataset.finished = piece.dataset.to;
    } else if (!growing) {
      reset();
    } else {
      const code = growing.lastElementChild?.matches("pre, .code-box") && growing.lastElementChild.querySelector("code");
      let end = code || growing;
      while (!code && end.lastElementChild && !after(end.lastElementChild)) end = end.lastElementChild;
      end.lastChild?.nodeType === Node.TEXT_NODE ? end.lastChild.appendData(piece.textContent) : end.append(piece.textContent);
    }
  };
  // Finished blocks are kept in groups, so that a page does not have to look at all of them whenever a word joins the last one.
  // They are grouped by number alone: the same text has the same groups, whether it grew or came at once.
  const NODES_PER_GROUP = 48; // blocks, and the line ends between them
  const settle = (text, blocks) => {
    while (blocks.firstChild) {
      let group = text.lastElementChild;
      if (!group?.matches(".settled") || group.childNodes.length >= NODES_PER_GROUP) {
        group = document.createElement("div");
        group.className = "settled";
        text.append(group);
      }
      // Moved by a range: nothing here ever holds the nodes themselves.
      const range = document.createRange();
      range.setStart(blocks, 0);
      range.setEnd(blocks, Math.min(blocks.childNodes.length, NODES_PER_GROUP - group.childNodes.length));
      group.append(range.extractContents());
    }
  };
  const grown = (root) => root.querySelectorAll("[data-open]").forEach(settled);
  const settled = (text) => {
    const growing = text.lastElementChild?.matches(".growing") ? text.lastElementChild : undefined;
    growing?.remove();
    const range = document.createRange();
    range.selectNodeContents(text);
    settle(text, range.extractContents());
    if (growing) text.append(growing);
  };
  const after = (el) => {
    for (let next = el.nextSibling; next; next = next.nextSibling) if (next.textContent.trim()) return true;
    return false;
  };
  const lanes = (piece) => {
    const open = document.querySelector(`#${CSS.escape(piece.dataset.lanes)} > .message-body`);
    if (!open) return;
    grown(piece);
    const from = Number(piece.dataset.from);
    const known = new Map();
    const places = scrolled(open);
    const first = piece.firstElementChild;
    for (const lane of [...open.children]) {
      if (lane.matches(".message-head, .older")) continue;
      if (lane.dataset.lane !== undefined && Number(lane.dataset.lane) < from) continue;
      // A text that is being read stays where it is.
      if (window.htmx && first?.matches(".prose") && lane.matches(".prose") && lane.dataset.lane === first.dataset.lane) {
        first.remove();
        if (lane.querySelector(":scope > .settled") && !first.querySelector(":scope > .settled")) settled(first);
        morph(lane, first);
        continue;
      }
      folds(lane, known);
      lane.remove();
    }
    for (const lane of [...piece.children]) {
      unfold(lane, known);
      open.append(lane);
      if (lane.querySelector("form")) window.htmx?.process(lane);
    }
    rescroll(open, places);
  };
  const entry = (piece) => {
    const entries = document.getElementById("entries");
    const old = document.getElementById(piece.id);
    grown(piece);
    if (old?.dataset.openMessage !== undefined) {
      // The same groups as before: nothing that is being read is made anew.
      for (const lane of old.querySelectorAll(".message-body > .prose:has(> .settled)")) {
        const same = piece.querySelector(`.message-body > .prose[data-lane="${CSS.escape(lane.dataset.lane)}"]:not(:has(> .settled))`);
        if (same) settled(same);
      }
    }
    if (old) return old.dataset.openMessage === undefined ? replace(old, piece) : morph(old, piece);
    if (!entries) return;
    const seq = Number(piece.dataset.seq);
    const first = entries.querySelector(":scope > article.message");
    if (first && seq < Number(first.dataset.seq) && entries.querySelector(":scope > .older")) return; // comes with the earlier ones
    const next = [...entries.querySelectorAll(":scope > article.message")].find((el) => Number(el.dataset.seq) > seq);
    next ? next.before(piece) : entries.append(piece);
    document.getElementById("nothing-yet")?.remove();
    window.htmx?.process(piece);
  };

  // The text that is being read does not move; a reader at the end stays at the end.
  const scroller = () => document.querySelector(".talk-scroll");
  let height, frame;
  const keep = () => {
    const talk = scroller();
    if (!talk) return;
    const more = talk.scrollHeight - height;
    height = talk.scrollHeight;
    if (!more || talk.scrollTop >= -48) return;
    talk.scrollTop -= more;
    jump(true);
  };
  const keeping = (change) => {
    const talk = scroller();
    if (!talk) return change();
    if (frame) keep();
    else height = talk.scrollHeight;
    change();
    keep();
    // What the page itself does with what is new, such as buttons that need a script, comes a moment later.
    frame ??= requestAnimationFrame(() => { frame = undefined; keep(); });
  };
  const jump = (show) => {
    const button = document.querySelector(".jump");
    if (button) button.hidden = !show;
  };
  scroller()?.addEventListener("scroll", () => { if (scroller().scrollTop > -48) jump(false); }, { passive: true });
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.(".jump")) return;
    event.preventDefault();
    scroller().scrollTop = 0;
    jump(false);
  });

  // The stream cannot continue from this page's cursor: the page is fetched anew, once at a time and not all the time.
  let resetting, resetAt = 0;
  const reset = () => {
    close();
    clearTimeout(retry);
    resetting ??= new Promise((done) => setTimeout(done, Math.max(0, resetAt + 2000 - Date.now())))
      .then(fetched).catch(() => location.reload()).finally(() => { resetting = undefined; resetAt = Date.now(); });
  };
  const fetched = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return location.reload();
    if (!document.getElementById("entries")) return location.reload();
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    cursor = fresh.body.dataset.cursor || "";
    for (const id of ["entries", "asks", "dock-state"]) {
      const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
      if (!old || !now) continue;
      grown(now);
      if (isHeld(old)) held.set(id, { fresh: now, at: old });
      else replace(old, now);
    }
    close();
    open();
  };
  const end = (reason) => {
    close();
    if (reason === "shutdown") {
      state(false);
      retry = setTimeout(open, 1000 + Math.random() * 2000);
      return;
    }
    over = true;
    state(false);
    document.querySelectorAll("[data-lost-why]").forEach((el) => {
      el.textContent = "Your access to this page has ended.";
    });
  };

  // Others are told that somebody writes here, and never what.
  let told = 0;
  document.addEventListener("input", (event) => {
    const address = document.getElementById("writing")?.dataset.writing;
    if (!address || !event.target.matches?.("#composer textarea") || !event.target.value.trim()) return;
    if (body.dataset.live !== "on" || Date.now() - told < 3000) return;
    told = Date.now();
    fetch(address, { method: "POST" }).catch(() => {});
  });

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenAt);
    if (document.hidden) hiddenAt = setTimeout(() => { close(); clearTimeout(retry); }, HIDDEN);
    else if (!source) open();
  });
  // The page shows something else beside the conversation.
  document.addEventListener("stream", () => {
    close();
    held.clear();
    open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  addEventListener("online", () => { if (!source) open(); });
  grown(document);
  open();
})();

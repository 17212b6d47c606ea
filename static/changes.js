// The tab Files: what changed in spaces is asked of the viber beside the conversation, and lines are commented on where they
// stand. Without it the same links and forms lead to pages.
(() => {
  "use strict";
  const PAUSE = 5_000; // between two looks at a space: each is work for the viber
  const SLOW = 1_000; // a look that takes longer says so
  const PATIENCE = 30_000; // the Board itself gives up before
  const RETRY = 10_000; // a viber that is busy is asked again, a few times
  const RETRIES = 3;
  const STALE = 30_000; // who comes back to the page sees what is so now

  const parse = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  };
  const ask = (url, options = {}) => fetch(url, {
    ...options, headers: { "HX-Request": "true", accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE),
  });
  const say = (words) => window.board?.say(words);

  // Looks come one after the other, whatever asks for them.
  const states = new WeakMap();
  const state = (box) => states.get(box) ?? states.set(box, { at: 0, ended: 0, tries: 0, due: false, busy: false }).get(box);
  const boxes = () => [...document.querySelectorAll("[data-look]")];
  const isSeen = (box) => !document.hidden && box.isConnected && box.getClientRects().length > 0;
  let turn = Promise.resolve();
  const look = (box) => {
    const here = state(box);
    here.due = true;
    if (here.busy || !isSeen(box)) return;
    clearTimeout(here.timer);
    const wait = here.ended + PAUSE - Date.now();
    if (here.ended && wait > 0) {
      here.timer = setTimeout(() => look(box), wait);
      return;
    }
    here.busy = true;
    turn = turn.then(() => read(box, here)).catch(() => {}).finally(() => {
      here.busy = false;
      here.ended = Date.now();
      if (here.due) look(box);
    });
  };
  const read = async (box, here) => {
    if (!isSeen(box)) return;
    here.due = false;
    const began = Date.now();
    const waits = setInterval(() => {
      if (Date.now() - began >= SLOW) tell(box, here, `Reading from the viber, ${Math.round((Date.now() - began) / 1000)} s`);
    }, SLOW);
    box.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(box.dataset.look);
      const fresh = parse(await answer.text());
      const changes = fresh.querySelector(".changes");
      if (!answer.ok || !changes) return failed(box, here, fresh.firstElementChild);
      [here.at, here.tries, here.away] = [Date.now(), 0, false];
      await show(box, changes);
      tell(box, here);
    } catch {
      tell(box, here, "No answer from the Board");
    } finally {
      clearInterval(waits);
      box.removeAttribute("aria-busy");
    }
  };
  // What was seen before stays, and says how old it is.
  const failed = (box, here, trouble) => {
    const why = trouble?.textContent.trim() || "This cannot be shown right now.";
    here.away = true;
    const body = box.querySelector(".look-body");
    if (!here.at && trouble) body.replaceChildren(trouble);
    tell(box, here, here.at ? trouble?.dataset.brief || why : "");
    if (/try again in a moment/.test(why) && here.tries < RETRIES) {
      here.tries += 1;
      here.timer = setTimeout(() => look(box), RETRY);
    }
  };
  // The line below a space's name: what hinders, and how old what stands below is.
  const tell = (box, here, words = "") => {
    const line = box.querySelector(".look-state");
    if (line.dataset.words === `${here.at} ${words}`) return;
    line.dataset.words = `${here.at} ${words}`;
    line.replaceChildren(words);
    if (!here.at) return;
    const time = document.createElement("time");
    time.dateTime = new Date(here.at).toISOString();
    time.dataset.as = "ago";
    line.append(words ? `${words.endsWith(".") ? "" : "."} This is as it was ` : "As of ", time);
    if (words) line.append(".");
  };

  // What is open stays open, and is read again; what is being written stays.
  const isWritten = (el) => [...el.querySelectorAll(".comment-form textarea")].some((area) => area.value.trim() || area === document.activeElement);
  const isFocused = (el) => el.contains(document.activeElement) && document.activeElement.matches("textarea");
  const show = async (box, fresh) => {
    const body = box.querySelector(".look-body");
    const old = body.querySelector(".changes");
    // Nothing moves under the one who writes: it is shown when they are done.
    state(box).held = old && isFocused(old) ? fresh : undefined;
    if (state(box).held) return;
    const count = Number(fresh.dataset.count);
    box.querySelector(".look-count").textContent = count ? String(count) : "";
    box.dataset.count = fresh.dataset.count;
    if (!old) {
      body.replaceChildren(fresh);
      window.htmx?.process(fresh);
      return;
    }
    const opened = [...old.querySelectorAll("details.change[open]")];
    for (const was of opened) {
      const now = [...fresh.querySelectorAll("details.change")].find((fold) => fold.id === was.id);
      if (now) {
        was.querySelector("summary").replaceWith(now.querySelector("summary"));
        now.replaceWith(was);
      } else if (isWritten(was)) {
        fresh.append(was); // the comment outlives the change that it is about
      }
    }
    old.replaceWith(fresh);
    window.htmx?.process(fresh);
    for (const was of opened) {
      const place = was.isConnected && was.querySelector(".change-diff");
      if (!place || isWritten(was) || !place.querySelector(".space-diff")) continue;
      const answer = await ask(was.getAttribute("hx-get"));
      const diff = parse(await answer.text()).firstElementChild;
      const lines = (el) => el?.querySelector("table.lines")?.textContent;
      if (answer.ok && diff?.matches(".space-diff") && lines(diff) !== lines(place) && !isWritten(was)) {
        place.replaceChildren(diff);
        window.htmx?.process(diff);
      }
    }
  };

  // News: the agent did something, or the viber came back.
  const news = () => boxes().forEach(look);
  const isDeed = (node) => node.nodeType === 1 && (node.matches(".call, .calls, article, .ended") || node.querySelector(".call"));
  const watch = () => {
    const entries = document.getElementById("entries");
    if (!entries) return;
    new MutationObserver((changes) => {
      if (changes.some((change) => !change.target.closest(".prose") && [...change.addedNodes].some(isDeed))) news();
    }).observe(entries, { childList: true, subtree: true });
    const bar = document.getElementById("bar");
    new MutationObserver(() => {
      boxes().filter((box) => state(box).away).forEach(look);
    }).observe(bar, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-state"] });
  };
  const begin = () => boxes().filter((box) => !states.has(box)).forEach(look);
  const pane = document.getElementById("pane");
  if (pane) new MutationObserver(begin).observe(pane, { childList: true, subtree: true });
  const main = document.getElementById("main");
  if (pane && main) {
    // On a phone the pane is there before it is shown.
    new MutationObserver(() => boxes().filter((box) => state(box).due).forEach(look))
      .observe(main, { attributes: true });
  }
  document.addEventListener("visibilitychange", () => {
    for (const box of boxes()) if (state(box).due || Date.now() - state(box).at > STALE) look(box);
  });
  document.addEventListener("focusout", () => setTimeout(() => {
    for (const box of boxes()) if (state(box).held && !isFocused(box)) show(box, state(box).held);
  }));
  document.addEventListener("click", (event) => {
    const box = event.target.closest?.("[data-look-again]")?.closest("[data-look]");
    if (!box) return;
    [state(box).ended, state(box).tries] = [0, 0];
    look(box);
  });
  watch();
  begin();

  // Comments: a form below the line, without leaving the page.
  const coarse = matchMedia("(pointer: coarse)");
  const write = (link) => {
    const row = link.closest("tr");
    const table = row.closest("table");
    const template = table.parentElement.querySelector(":scope > template");
    if (!template) return false;
    let after = row;
    while (after.nextElementSibling?.matches(".comment-row")) {
      after = after.nextElementSibling;
      const open = after.querySelector("textarea");
      if (open) {
        open.focus();
        return true;
      }
    }
    const fresh = template.content.querySelector("tr").cloneNode(true);
    const { side, line } = link.dataset;
    const form = fresh.querySelector("form");
    [form.elements.side.value, form.elements.line.value, form.elements.quote.value] = [side, line, row.lastElementChild.textContent];
    // The same form sent twice, because the first answer was lost, is one comment.
    form.elements.key.value = [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("-");
    const area = form.elements.remark;
    area.setAttribute("aria-label", link.getAttribute("aria-label"));
    area.dataset.draft = ["comment", form.elements.space.value, form.elements.path.value, side, line, location.pathname].join(":");
    after.after(fresh);
    area.focus();
    return true;
  };
  const forget = (area) => { try { localStorage.removeItem(`draft:${area.dataset.draft}`); } catch { /* forbidden */ } };
  const leave = (form) => {
    const row = form.closest("tr");
    let line = row.previousElementSibling;
    while (line?.matches(".comment-row")) line = line.previousElementSibling;
    forget(form.elements.remark);
    row.remove();
    line?.querySelector(".line-link")?.focus();
  };
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const cancel = event.target.closest?.("[data-cancel]");
    if (cancel) return leave(cancel.form);
    const tapped = coarse.matches && !event.target.closest?.("a, button, form") && !String(getSelection())
      && event.target.closest?.("table.lines tr:not(.comment-row)")?.querySelector(".line-link");
    const link = event.target.closest?.("a.line-link") || tapped;
    if (link && write(link)) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const area = event.target.closest?.(".comment-form textarea");
    if (!area || event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      area.form.requestSubmit();
    } else if (event.key === "Escape" && !area.value.trim() && area.form.querySelector("[data-cancel]")) {
      event.stopPropagation();
      leave(area.form);
    }
  }, true);
  const refresh = (fresh) => {
    const bar = fresh.querySelector("#comments-bar");
    if (bar) document.getElementById("comments-bar")?.replaceWith(bar);
  };
  const post = async (form) => {
    const answer = await ask(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    return [answer, parse(await answer.text())];
  };
  const add = async (form) => {
    const trouble = form.querySelector(".field-error");
    const button = form.querySelector(".primary");
    button.disabled = true;
    const [answer, fresh] = await post(form).catch(() => [{ ok: false }, parse("")]);
    button.disabled = false;
    const row = fresh.querySelector("tr.comment-row");
    if (!answer.ok || !row) {
      trouble.textContent = fresh.querySelector("p")?.textContent.trim() || "That did not reach the Board. What you wrote is kept.";
      trouble.hidden = false;
      return;
    }
    const place = form.closest("tr");
    place.before(row);
    leave(form);
    refresh(fresh);
    say("The comment waits to be sent");
  };
  const remove = async (form) => {
    const [answer, fresh] = await post(form).catch(() => [{ ok: false }]);
    if (!answer.ok) return form.submit();
    form.closest("tr").remove();
    refresh(fresh);
  };
  const send = async (bar) => {
    const ids = new Set(new FormData(bar).getAll("comment"));
    bar.querySelector(".primary").disabled = true;
    const [answer, fresh] = await post(bar).catch(() => [{ ok: false }]);
    // What hinders is a page of its own; the same form sent twice is one message.
    if (!answer.ok && answer.status !== 409) return bar.submit();
    if (answer.ok && document.body.dataset.live !== "on") return location.reload();
    refresh(fresh);
    if (!answer.ok) return say("These comments changed in another window");
    for (const comment of document.querySelectorAll(".comment[data-comment]")) {
      if (ids.has(comment.dataset.comment)) comment.closest("tr").remove();
    }
    say("Sent to the agent");
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const act = form.matches("table.lines .comment-form:has(.field-error)") ? add
      : form.matches(".comment-remove") ? remove
        : form.matches("#comments-bar") && document.body.dataset.place === "session" ? send : undefined;
    if (!act) return;
    event.preventDefault();
    act(form);
  });
})();

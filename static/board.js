// What a page does beyond links and forms: local times, drafts, copying, sending with a key. Everything works without it.
(() => {
  "use strict";
  const each = (root, selector, act) => {
    if (root.matches?.(selector)) act(root);
    root.querySelectorAll?.(selector).forEach(act);
  };

  // Times: UTC from the server, shown in the reader's zone. Ages are kept current.
  const day = 86_400_000;
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const week = new Intl.DateTimeFormat(undefined, { weekday: "short" });
  const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const span = (ms) => {
    const s = Math.floor(ms / 1000);
    return s < 1 ? "now" : s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min`
      : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  };
  // What lasts is counted by the second.
  const lasted = (ms) => {
    const s = Math.floor(ms / 1000);
    return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  };
  const write = (el) => {
    const at = new Date(el.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const now = Date.now();
    const midnight = new Date().setHours(0, 0, 0, 0);
    const text = {
      clock: () => clock.format(at),
      full: () => full.format(at),
      ago: () => now - at < 1000 ? "just now" : `${span(now - at)} ago`,
      since: () => span(Math.max(1000, now - at)),
      lasted: () => lasted(Math.max(1000, now - at)),
      left: () => span(Math.max(0, at - now)),
      short: () => (at >= midnight ? clock : midnight - at < 6 * day ? week : date).format(at),
    }[el.dataset.as];
    if (!text) return;
    const words = text();
    if (el.textContent !== words) el.textContent = words;
    if (!el.title) el.title = full.format(at);
  };
  setInterval(() => {
    if (!document.hidden) each(document, 'time:is([data-as="ago"], [data-as="left"], [data-as="short"])', write);
    // What is at work is not known while the Board is away.
    if (!document.hidden && !document.body.hasAttribute("data-lost")) {
      each(document, 'time[data-as="since"]', write);
      // Nor is it while the viber is.
      const state = document.getElementById("task-state")?.dataset.state;
      if (!state || state === "working") each(document, 'time[data-as="lasted"]', write);
    }
  }, 1000);

  // Copying: buttons that make no sense without a script are hidden until one is here.
  const icon = (name) => {
    const use = document.querySelector(".icon use");
    const sprite = use ? use.getAttribute("href").split("#")[0] : "";
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const ref = document.createElementNS("http://www.w3.org/2000/svg", "use");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    ref.setAttribute("href", `${sprite}#${name}`);
    svg.append(ref);
    return svg;
  };
  const copied = (button, text) => navigator.clipboard?.writeText(text).then(() => {
    const use = button.querySelector("use");
    const was = use?.getAttribute("href");
    use?.setAttribute("href", was.replace(/#.*/, "#check"));
    say("Copied");
    setTimeout(() => use?.setAttribute("href", was), 1600);
  });
  const codeButton = (pre) => {
    if (pre.parentElement.classList.contains("code-box")) return;
    const box = document.createElement("div");
    const button = document.createElement("button");
    box.className = "code-box";
    button.className = "btn quiet square small";
    button.type = "button";
    button.dataset.copy = "code";
    button.setAttribute("aria-label", "Copy the code");
    button.append(icon("copy"));
    pre.replaceWith(box);
    box.append(pre, button);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) {
      const text = {
        command: () => button.closest(".command").querySelector("code").textContent,
        code: () => button.closest(".code-box").querySelector("pre").textContent,
        output: () => button.closest(".output").querySelector(".out").textContent,
        message: () => [...button.closest(".message").querySelectorAll(".message-body > .prose")]
          .map((lane) => {
            const beside = [...lane.querySelectorAll(".suggestion, .note-back")]; // no words of the answer
            beside.forEach((el) => { el.hidden = true; });
            const words = lane.innerText.trim();
            beside.forEach((el) => { el.hidden = false; });
            return words;
          }).join("\n\n"),
      }[button.dataset.copy]();
      copied(button, text);
    }
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    const fold = event.target.closest?.("summary")?.parentElement;
    if (fold) fold.dataset.touched = "";
    const all = event.target.closest?.("[data-folds]");
    if (all) {
      folding = all.dataset.folds === "open";
      each(document, "#entries details.fold", (one) => {
        one.open = folding;
        one.dataset.touched = "";
      });
      say(folding ? "All rows are open" : "All rows are folded");
    }
    const wrap = event.target.closest?.("[data-wrap]");
    if (wrap) {
      store.set("wrap", store.get("wrap") ? "" : "on");
      wrapped();
    }
    const end = event.target.closest?.("[data-end]");
    if (end) end.closest(".output").querySelector(".out").scrollTop = 0;
  });
  // What was asked of all rows goes for those that come, until one is opened or folded by itself.
  let folding;
  const foldLikeAll = (fold) => {
    if (folding === undefined || fold.dataset.touched !== undefined) return;
    fold.open = folding;
    fold.dataset.touched = "";
  };
  // The buttons of an output: long lines wrapped or not, everywhere; the end; a copy of what is shown.
  const outputButtons = (foot) => {
    if (foot.querySelector(".actions")) return;
    const actions = document.createElement("span");
    actions.className = "push actions";
    for (const [name, sign, label] of [["end", "down", "Follow its end"], ["wrap", "wrap", "Wrap long lines"], ["copy", "copy", "Copy what is shown"]]) {
      const button = document.createElement("button");
      button.className = "btn quiet square small";
      button.type = "button";
      button.dataset[name] = name === "copy" ? "output" : "";
      button.setAttribute("aria-label", label);
      button.title = label;
      button.append(icon(sign));
      actions.append(button);
    }
    foot.append(actions);
    wrapped(foot);
  };
  const wrapped = (root = document) => {
    const on = Boolean(store.get("wrap"));
    document.documentElement.toggleAttribute("data-wrapped", on);
    each(root, "[data-wrap]", (button) => button.setAttribute("aria-pressed", on));
  };

  // A polite announcement for screen readers.
  const say = (words) => {
    let voice = document.getElementById("voice");
    if (!voice) {
      voice = document.createElement("p");
      voice.id = "voice";
      voice.className = "visually-hidden";
      voice.setAttribute("role", "status");
      document.body.append(voice);
    }
    voice.textContent = words;
  };

  // Drafts stay on this machine until they are sent. One that was sent is forgotten by the page that shows its message.
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, text) => { try { text ? localStorage.setItem(key, text) : localStorage.removeItem(key); } catch { /* full or forbidden */ } },
  };
  const drafted = (area) => `draft:${area.dataset.draft}`;
  const sent = () => {
    const [key, text] = JSON.parse(store.get("sent") || "[]");
    if (key && document.body.dataset.place === "session" && store.get(key) === text) store.set(key, "");
    store.set("sent", "");
  };
  sent();
  const draft = (area) => {
    if (area.dataset.drafting) return;
    area.dataset.drafting = "on";
    const kept = store.get(drafted(area));
    if (kept && !area.value) area.value = kept;
    // A page that answers a form takes the address under which a reload finds it.
    if (area.dataset.address) {
      store.set(drafted(area), area.value);
      history.replaceState(null, "", area.dataset.address);
    }
    area.addEventListener("input", () => store.set(drafted(area), area.value));
    area.form?.addEventListener("submit", () => {
      // htmx puts an empty composer in its place; a plain form leaves the page.
      if (window.htmx && area.form.hasAttribute("hx-post")) store.set(drafted(area), "");
      else store.set("sent", JSON.stringify([drafted(area), area.value]));
    });
  };
  document.addEventListener("htmx:error", () => {
    each(document, "textarea[data-draft]", (area) => store.set(drafted(area), area.value));
    say("That did not reach the Board. What you wrote is kept.");
  });
  // A refusal without what it was to bring stands above its form, which stays, too.
  document.addEventListener("htmx:before:swap", (event) => {
    const ctx = event.detail?.ctx;
    if (!ctx?.select || !(ctx.response?.status >= 400)) return;
    const said = new DOMParser().parseFromString(ctx.text, "text/html");
    const alert = said.querySelector("[role=alert]");
    if (!alert || said.querySelector(ctx.select)) return;
    event.preventDefault();
    const form = ctx.sourceElement;
    const before = form.previousElementSibling;
    if (before?.matches(".callout[role=alert]")) before.remove();
    form.before(document.adoptNode(alert));
  });
  // A card that is decided takes the place of all of them: what was filled into the others goes along.
  let filled = [];
  const field = (card, one) => `${card} [name="${one.name}"]${one.type === "radio" ? `[value="${CSS.escape(one.value)}"]` : ""}`;
  document.addEventListener("htmx:before:swap", (event) => {
    const from = event.detail?.ctx?.sourceElement?.closest?.("#asks") && event.detail.ctx.sourceElement.closest("[data-approval]");
    if (from === undefined) return;
    filled = [...document.querySelectorAll("#asks [data-approval]")].filter((card) => card !== from).flatMap((card) =>
      [...card.querySelectorAll("textarea, input:not([type=hidden])")]
        .filter((one) => one.type === "radio" ? one.checked !== one.defaultChecked : one.value !== one.defaultValue)
        .map((one) => ({ place: field(`#${CSS.escape(card.id)}`, one), value: one.value, checked: one.checked, focus: one === document.activeElement })));
  });
  const refill = () => {
    filled.splice(0).forEach(({ place, value, checked, focus }) => {
      const one = document.querySelector(place);
      if (!one) return;
      if (one.type === "radio") one.checked = checked;
      else one.value = value;
      const fold = one.closest("details");
      if (fold) fold.open = true;
      if (focus) one.focus();
    });
  };
  document.addEventListener("htmx:after:swap", (event) => {
    refill();
    each(document, "time[data-as]", write); // a morph changes texts in place
    each(document, ".output > footer", outputButtons); // and takes away what it does not know
    const form = event.detail?.ctx?.sourceElement;
    const ok = event.detail?.ctx?.response?.status < 400;
    if (ok && form?.id === "composer") {
      document.querySelector("#composer textarea")?.focus();
      if (document.body.dataset.live !== "on") location.reload();
    }
  });

  // Keyboard shortcuts, off inside text fields, under a dialog, and while an input method composes.
  const coarse = matchMedia("(pointer: coarse)");
  document.documentElement.toggleAttribute("data-keys", !coarse.matches);
  let going = 0;
  const keyed = (key) => document.querySelector(`main [data-key="${CSS.escape(key)}"]`) ?? document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const rows = () => {
    const of = (place) => [...document.querySelectorAll(`${place} [data-row]`)];
    const all = of("main");
    return all.length ? all : of(".rail");
  };
  const step = (by) => {
    const all = rows();
    const at = all.indexOf(document.activeElement);
    const here = at < 0 ? all.findIndex((row) => row.hasAttribute("aria-current")) : at;
    all[here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1)]?.focus();
  };
  // The first one asks, the second one stops; a button that holds the focus has been asked for.
  const stop = (button) => {
    if (document.activeElement === button) return button.click();
    button.focus();
    button.toggleAttribute("data-armed", true);
    button.addEventListener("blur", () => button.removeAttribute("data-armed"), { once: true });
    say("Press Escape again to stop the task");
  };
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "." && (event.ctrlKey || event.metaKey)) {
      const button = keyed("Escape");
      if (button) event.preventDefault();
      button?.click();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const field = event.target.closest?.("textarea, input, select, [contenteditable]");
    if (event.key === "Enter" && field?.tagName === "TEXTAREA" && field.form?.id === "composer") {
      const how = `${event.ctrlKey || event.metaKey ? "ctrl+" : event.altKey ? "alt+" : ""}enter`;
      const mode = field.form.querySelector(`[data-key-in="${how}"]`);
      // The menu that holds it may be closed, and is not there while no task runs.
      if (mode?.closest(".when-busy")?.checkVisibility()) {
        event.preventDefault();
        if (field.value.trim()) field.form.requestSubmit(mode);
        return;
      }
      const plain = field.dataset.enter === "send" && !event.shiftKey && !event.altKey && !coarse.matches;
      if (event.ctrlKey || event.metaKey || plain) {
        event.preventDefault();
        if (field.value.trim()) field.form.requestSubmit();
      }
      return;
    }
    if (event.key === "Escape") {
      const menu = document.querySelector("details.menu[open]");
      const button = keyed("Escape");
      if (menu) menu.open = false;
      else if (button && (!field || field.form?.id === "composer")) stop(button);
      else if (field) field.blur();
      return;
    }
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "g" && !event.repeat) {
      going = Date.now();
      return;
    }
    const row = document.activeElement?.closest?.("[data-row]");
    const target = Date.now() - going < 1500 ? document.querySelector(`[data-go="${CSS.escape(event.key)}"]`)
      : event.key === "e" && row ? row.closest("li, tr").querySelector("[data-key=e]")
        : event.key === "End" ? document.querySelector(".jump:not([hidden])") : keyed(event.key);
    going = 0;
    if (target) {
      event.preventDefault();
      target.matches("input, textarea") ? target.focus() : target.click();
    } else if (event.key === "End") {
      // The list of entries is reversed: its beginning is the newest.
      document.querySelector(".talk-scroll")?.scrollTo(0, 0);
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    }
  });

  // All of this also applies to what htmx or the stream puts into the page later.
  const care = (root) => {
    each(root, "time[data-as]", write);
    each(root, "[data-copy][hidden], [data-scripted][hidden]", (el) => { el.hidden = false; });
    each(root, ".prose pre", codeButton);
    each(root, ".output > footer", outputButtons);
    each(root, "#entries details.fold", foldLikeAll);
    each(root, "textarea[data-draft]", draft);
    each(root, "[data-unread-count]", (el) => {
      const count = el.dataset.unreadCount;
      document.title = (count ? `(${count}) ` : "") + document.title.replace(/^\(\d+\+?\) /, "");
    });
  };
  care(document);
  new MutationObserver((changes) => {
    const groups = new Set();
    for (const change of changes) {
      // Of an answer's blocks only those are looked at that need something: a node that a script has seen stays in memory.
      if (change.target.className === "settled") groups.add(change.target);
      else for (const node of change.addedNodes) if (node.nodeType === 1) care(node);
    }
    groups.forEach(care);
  }).observe(document.body, { childList: true, subtree: true });
  window.board = { span, say, times: (root) => each(root, "time[data-as]", write) };
})();

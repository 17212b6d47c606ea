// The palette and the sheet of keys: what can be done on this page, sessions, vibers, places. Fetched when first asked for.
(() => {
  "use strict";
  const address = document.body.dataset.palette;
  if (!address) return;
  let loading, palette, asked = 0, timer;
  const input = () => palette.querySelector("input");
  const hits = () => palette.querySelector("#hits");
  const options = () => [...hits().querySelectorAll("[role=option]")];

  const load = () => loading ??= fetch(address).then((answer) => answer.ok ? answer.text() : "").then((text) => {
    const dialogs = new DOMParser().parseFromString(text, "text/html").querySelectorAll("dialog");
    // Whoever was signed out meanwhile finds the way in there.
    if (!dialogs.length) return location.assign(document.querySelector("[data-opens=palette]").href);
    for (const dialog of dialogs) {
      document.body.append(dialog);
      dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    }
    palette = document.getElementById("palette");
    palette.fresh = hits().innerHTML;
    input().addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(find, 80);
    });
    input().addEventListener("keydown", keys);
    hits().addEventListener("mousemove", (event) => choose(event.target.closest("[role=option]")));
  }).catch(() => { loading = undefined; });

  const open = async (id) => {
    await load();
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return;
    document.querySelector("dialog[open]")?.close();
    document.getElementById("rail")?.matches(":popover-open") && document.getElementById("rail").hidePopover();
    dialog.showModal();
    if (dialog !== palette) return;
    input().value = "";
    show(palette.fresh, "");
    find();
  };

  // What the page offers is found here, everything else by the Board.
  const find = async () => {
    const [words, turn] = [input().value.trim(), ++asked];
    const answer = await fetch(`${address}?q=${encodeURIComponent(words)}`).catch(() => undefined);
    if (turn !== asked || !palette.open || !answer?.ok || answer.redirected) return;
    show(await answer.text(), words);
  };
  const show = (html, words) => {
    const was = chosen()?.id;
    hits().replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    // What a task waits for comes before what can be done with its session.
    const commands = ["#dock [data-command]", "main [data-command]:not(#dock *)"].flatMap((css) => [...document.querySelectorAll(css)])
      .filter((el) => !el.disabled && el.dataset.command.toLowerCase().includes(words.toLowerCase()));
    if (commands.length) hits().prepend(group(commands));
    if (words) hits().querySelectorAll(".cut").forEach((el) => mark(el, words.toLowerCase()));
    choose(options().find((option) => option.id === was) ?? options()[0]);
  };
  const group = (commands) => {
    const group = document.createElement("div");
    const title = document.createElement("p");
    group.setAttribute("role", "group");
    group.setAttribute("aria-labelledby", title.id = "hits-here");
    title.className = "group";
    title.textContent = "On this page";
    group.append(title, ...commands.map((el, n) => {
      const option = document.createElement("a");
      const words = document.createElement("span");
      Object.assign(option, { className: "row", id: `hit-here-${n}`, tabIndex: -1 });
      option.setAttribute("role", "option");
      words.className = "cut";
      words.textContent = el.dataset.command;
      const icon = (el.querySelector(".icon") ?? hits().querySelector(".icon")).cloneNode(true);
      const use = icon.querySelector("use");
      if (el.matches("input, textarea")) use.setAttribute("href", use.getAttribute("href").replace(/#.*/, "#edit"));
      option.append(icon, words);
      option.addEventListener("click", () => {
        palette.close();
        if (el.matches("input, textarea")) {
          const menu = el.closest("details");
          if (menu) menu.open = true;
          el.focus();
        } else el.click();
      });
      return option;
    }));
    return group;
  };
  const mark = (el, words) => {
    const text = el.textContent;
    const at = text.toLowerCase().indexOf(words);
    if (at < 0 || text.toLowerCase().length !== text.length) return;
    const hit = document.createElement("mark");
    hit.textContent = text.slice(at, at + words.length);
    el.replaceChildren(text.slice(0, at), hit, text.slice(at + words.length));
  };

  const chosen = () => hits().querySelector("[aria-selected=true]");
  const choose = (option) => {
    if (!option || option === chosen()) return;
    chosen()?.setAttribute("aria-selected", "false");
    option.setAttribute("aria-selected", "true");
    input().setAttribute("aria-activedescendant", option.id);
  };
  const keys = (event) => {
    if (event.isComposing) return;
    const all = options();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      choose(all[(all.indexOf(chosen()) + step + all.length) % all.length]);
      chosen()?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      const option = chosen();
      if ((event.ctrlKey || event.metaKey) && option?.href) window.open(option.href, "_blank", "noopener");
      else option?.click();
    }
  };

  document.addEventListener("click", (event) => {
    const opener = event.target.closest?.("[data-opens]");
    if (!opener || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(opener.dataset.opens);
  });
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      palette?.open ? palette.close() : open("palette");
    } else if (event.key === "?" && !event.ctrlKey && !event.metaKey && !event.target.closest?.("textarea, input, select")) {
      open("keys");
    }
  });
})();

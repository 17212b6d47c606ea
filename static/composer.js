// The composer: the focus when a page opens, files that are pasted, dropped or chosen, examples, and who is to answer.
// Without it files are chosen by the same field and sent by the same forms.
(() => {
  "use strict";
  const coarse = matchMedia("(pointer: coarse)").matches;
  const composer = () => document.getElementById("composer");
  const area = () => composer()?.querySelector("textarea");
  const say = (words) => window.board?.say(words);

  // A keyboard that covers half of a phone comes only when it is asked for.
  const focus = () => {
    const field = area();
    const hidden = !field || field.offsetParent === null;
    if (hidden || coarse || location.hash || document.activeElement !== document.body) return;
    if (document.querySelector(".newer")) return;
    field.focus({ preventScroll: true });
    field.setSelectionRange(field.value.length, field.value.length);
  };
  focus();

  // An example fills the field, and one can take it back.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-goal]");
    const field = area();
    if (!link || !field || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    field.focus();
    field.select();
    if (!document.execCommand("insertText", false, link.textContent)) {
      field.value = link.textContent;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
  });

  // Who answers is named where it is chosen.
  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("#composer");
    const words = form?.querySelector(".answerer-words");
    if (!words || !event.target.matches("select")) return;
    const chosen = (name) => form.querySelector(`select[name="${name}"]`)?.selectedOptions[0];
    const [agent, model] = [chosen("agent"), chosen("model")];
    // An agent is offered with its own model behind the last comma; one that answered before without it.
    const own = (option) => option.textContent.replace(/, as before$/, "");
    const same = [...agent?.parentElement.options ?? []].find((option) => option.value && own(option).replace(/, [^,]*$/, "") === own(agent));
    const named = agent ? (agent.value ? own(agent) : own(same ?? agent)) : words.textContent;
    const other = !model || model.value === "own" ? "" : model.value ? model.value.split("/").slice(1).join("/") : own(model);
    words.textContent = other && other !== "Agent's own model" ? named.replace(/(, [^,]*)?$/, `, ${other}`) : named;
  });

  // Files. On a new task they stay in the form until it is sent; in a session each one is kept at once.
  const field = () => document.querySelector('.attach-pick input[type="file"]');
  const atOnce = () => document.getElementById("attach-form");
  const sizes = (bytes) => {
    const units = ["B", "kB", "MB", "GB"];
    let [size, unit] = [bytes, 0];
    while (size >= 1000 && unit < 3) [size, unit] = [size / 1000, unit + 1];
    return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
  };
  const element = (name, className, text) => {
    const el = document.createElement(name);
    if (className) el.className = className;
    if (text) el.textContent = text;
    return el;
  };
  const icon = (name) => {
    const svg = document.querySelector(".icon").cloneNode(true);
    const use = svg.querySelector("use");
    use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#${name}`));
    svg.setAttribute("class", "icon");
    return svg;
  };
  const MAX_DRAWN_BYTES = 32 * 1024 * 1024;
  const thumbnail = (file) => {
    const box = element("span", "thumb");
    box.append(icon("file"));
    if (/^image\/(png|jpeg|gif|webp|avif|bmp)$/.test(file.type) && file.size <= MAX_DRAWN_BYTES) {
      // Drawn small: no address of the file is needed, which the page's policy would refuse.
      createImageBitmap(file, { resizeHeight: 96, resizeQuality: "medium" }).then((picture) => {
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [picture.width, picture.height];
        canvas.getContext("2d").drawImage(picture, 0, 0);
        picture.close();
        box.replaceChildren(canvas);
      }).catch(() => { /* no picture after all */ });
    }
    return box;
  };
  const row = (file, remove) => {
    const item = element("li");
    const about = element("span", "file-about");
    const note = element("span", "meta", sizes(file.size));
    about.append(element("span", "cut", file.name), note);
    const button = element("button", "btn quiet square small");
    button.type = "button";
    button.setAttribute("aria-label", `Do not send ${file.name}`);
    button.append(icon("close"));
    button.addEventListener("click", remove);
    item.append(thumbnail(file), about, button);
    return { item, note };
  };
  const list = () => {
    let found = document.getElementById("attaching");
    if (!found) {
      found = element("ul", "attached");
      found.id = "attaching";
      found.setAttribute("aria-label", "Files that were chosen");
      const before = document.getElementById("attached") ?? document.querySelector(".attach-row");
      before.after(found);
    }
    found.hidden = false;
    return found;
  };

  // A new task: what the field holds.
  const chosen = (files) => {
    const held = new DataTransfer();
    files.forEach((file) => held.items.add(file));
    field().files = held.files;
    const items = [...files].map((file) => row(file, () => {
      chosen(files.filter((other) => other !== file));
      area()?.focus();
    }).item);
    list().replaceChildren(...items);
    list().hidden = !items.length;
  };

  // A session: one upload after the other.
  const sending = new Set();
  let queue = Promise.resolve();
  let held; // a message that waits for its files, and the button that sends it
  const done = () => {
    if (sending.size || !held) return;
    const { form, button } = held;
    held = undefined;
    if (form.isConnected) form.requestSubmit(button?.isConnected ? button : null);
  };
  const kept = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = template.content.getElementById("attached");
    if (fresh) document.getElementById("attached")?.replaceWith(fresh);
  };
  const takeBack = async (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    for (const button of template.content.querySelectorAll("[data-new] button")) {
      const answer = await fetch(button.getAttribute("formaction"), { method: "POST", headers: { "hx-request": "true" } }).catch(() => undefined);
      if (answer?.ok) kept(await answer.text());
      else say("The file could not be taken back");
    }
  };
  const isKept = (request) => request.status === 200
    && new DOMParser().parseFromString(request.responseText, "text/html").querySelector("#attached [data-new]");
  const words = (request) => {
    if (request.status === 401) return "You are signed out.";
    if (request.status === 200) return "The Board did not say that it has it.";
    const text = new DOMParser().parseFromString(request.responseText, "text/html").body.textContent.trim();
    return request.status === 0 ? "No contact with the Board." : text.slice(0, 300) || `The Board answered ${request.status}.`;
  };
  const upload = (file) => {
    const request = new XMLHttpRequest();
    const progress = element("progress");
    progress.max = 1;
    progress.value = 0;
    progress.setAttribute("aria-label", `Sending ${file.name}`);
    let [whole, unwanted] = [false, false];
    const { item, note } = row(file, () => {
      // What has left may be kept there: it is taken back once the answer says which it is.
      if (whole) unwanted = true;
      else request.abort();
      item.remove();
      sending.delete(item);
      done();
    });
    note.after(progress);
    sending.add(item);
    list().append(item);
    queue = queue.then(() => new Promise((next) => {
      if (!item.isConnected) return next();
      const over = () => {
        sending.delete(item);
        next();
        done();
      };
      const failed = () => {
        progress.remove();
        note.textContent = `${sizes(file.size)}. Not attached: ${words(request)}`;
        note.classList.add("bad");
        item.dataset.failed = "";
        held = undefined;
        say(`${file.name} was not attached`);
        over();
      };
      request.upload.addEventListener("progress", (event) => { if (event.lengthComputable) progress.value = event.loaded / event.total; });
      request.upload.addEventListener("load", () => {
        whole = true;
        // It has left, and nobody has said yet that it is kept.
        progress.removeAttribute("value");
      });
      request.addEventListener("load", () => {
        if (unwanted) return takeBack(request.responseText).finally(next);
        if (!isKept(request)) return failed();
        item.remove();
        kept(request.responseText);
        say(`${file.name} goes with the message`);
        over();
      });
      request.addEventListener("error", () => unwanted ? next() : failed());
      request.addEventListener("abort", over);
      const body = new FormData();
      body.append("file", file, file.name);
      request.open("POST", atOnce().action);
      request.setRequestHeader("hx-request", "true");
      request.send(body);
    }));
  };
  const add = (files) => {
    if (!files.length || !field()) return;
    if (atOnce()) files.forEach(upload);
    else chosen([...field().files, ...files]);
  };

  let before = []; // choosing again adds to what was chosen
  document.addEventListener("click", (event) => {
    if (event.target === field()) before = [...field().files];
  });
  document.addEventListener("change", (event) => {
    if (event.target !== field()) return;
    const files = [...field().files];
    if (atOnce()) field().value = "";
    if (atOnce()) add(files);
    else chosen([...before, ...files]);
  });
  document.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain");
    const files = [...event.clipboardData?.files ?? []];
    if (text || !files.length || !event.target.closest?.("#composer")) return;
    event.preventDefault();
    // A picture that was copied has no name of its own: two of them would be taken for versions of one.
    const now = new Date().toTimeString().slice(0, 8).replaceAll(":", "-");
    add(files.map((file, n) => file.name !== "image.png" ? file
      : new File([file], `pasted ${now}${n ? ` ${n + 1}` : ""}.png`, { type: file.type })));
  });
  const hasFiles = (event) => field() && event.dataTransfer?.types.includes("Files");
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      document.querySelector(".dock-card")?.toggleAttribute("data-drop", true);
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.querySelector(".dock-card")?.removeAttribute("data-drop");
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.querySelector(".dock-card")?.removeAttribute("data-drop");
    add([...event.dataTransfer.files]);
    area()?.focus();
  });

  // What is said to the conversation itself, and the skills of whoever answers, are offered while the first word is written.
  const slash = () => document.getElementById("slash");
  const offered = () => [...slash()?.querySelectorAll("[role=option]:not([hidden])") ?? []];
  const chosenWord = () => offered().find((option) => option.getAttribute("aria-selected") === "true");
  const choose = (option) => {
    for (const other of slash().querySelectorAll("[role=option]")) other.setAttribute("aria-selected", String(other === option));
    area().setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  };
  // A session's form knows the skills of the agent that answered before, not those of another one that is chosen there.
  const isOthers = (option) =>
    option.matches(".as-before > .of-agent") && Boolean(composer().querySelector('select[name="agent"]')?.value);
  const close = () => {
    if (!slash() || slash().hidden) return;
    slash().hidden = true;
    area().removeAttribute("aria-activedescendant");
  };
  const take = (option) => {
    close();
    area().focus();
    area().select();
    const text = `${option.querySelector("b").textContent} `;
    if (!document.execCommand("insertText", false, text)) area().value = text;
  };
  document.addEventListener("input", (event) => {
    if (event.target !== area() || !slash()) return;
    const word = event.target.value;
    const options = [...slash().querySelectorAll("[role=option]")];
    const isWord = /^\/[\w-]*$/.test(word);
    for (const option of options) option.hidden = !isWord || !option.querySelector("b").textContent.startsWith(word) || isOthers(option);
    if (!offered().length) return close();
    slash().hidden = false;
    choose(offered()[0]);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target !== area() || !slash() || slash().hidden || event.isComposing) return;
    const options = offered();
    const at = options.indexOf(chosenWord());
    const whole = options[at]?.querySelector("b").textContent === area().value;
    if (event.key === "ArrowDown") choose(options[(at + 1) % options.length]);
    else if (event.key === "ArrowUp") choose(options[(at + options.length - 1) % options.length]);
    else if (event.key === "Tab" && !event.shiftKey || event.key === "Enter" && !whole) take(options[at]);
    else if (event.key === "Escape") close();
    else return;
    // The word was chosen, not the message sent or the task stopped.
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  document.addEventListener("mousedown", (event) => {
    const option = event.target.closest?.("#slash [role=option]");
    if (!option) return event.target === area() ? undefined : close();
    event.preventDefault();
    take(option);
  });
  document.addEventListener("focusout", (event) => { if (event.target === area()) close(); });

  // What is kept is taken back without leaving the page.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("#attached button[formaction]");
    if (!button) return;
    event.preventDefault();
    fetch(button.formAction, { method: "POST", headers: { "hx-request": "true" } })
      .then(async (answer) => answer.ok ? kept(await answer.text()) : Promise.reject())
      .then(() => area()?.focus())
      .catch(() => say("The file could not be taken back"));
  });
  // A message waits until its files are there.
  document.addEventListener("submit", (event) => {
    if (event.target !== composer() || !sending.size) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    held = { form: event.target, button: event.submitter };
    say("The message is sent when its files are");
  }, true);
})();

// Messages that wait are put into another order by dragging. Without it, and by keyboard, the buttons of each do that.
(() => {
  "use strict";
  let moved; // the message that is dragged
  const row = (event) => event.target.closest?.("#queue > li[draggable]");
  const clear = () => document.querySelectorAll("#queue > li[data-over]").forEach((li) => li.removeAttribute("data-over"));
  // In its lower half it goes behind the message under the pointer.
  const isBehind = (li, event) => {
    const box = li.getBoundingClientRect();
    return event.clientY > box.top + box.height / 2;
  };
  document.addEventListener("dragstart", (event) => {
    const li = row(event);
    // Text of a field is dragged as text.
    if (!li || event.target !== li) return;
    moved = li.dataset.message;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", "");
  });
  document.addEventListener("dragend", () => {
    moved = undefined;
    clear();
  });
  document.addEventListener("dragover", (event) => {
    const li = moved && row(event);
    if (!li) return;
    event.preventDefault();
    clear();
    if (li.dataset.message !== moved) li.dataset.over = isBehind(li, event) ? "after" : "before";
  });
  document.addEventListener("drop", (event) => {
    const li = moved && row(event);
    if (!li) return;
    event.preventDefault();
    const own = document.querySelector(`#queue > li[data-message="${CSS.escape(moved)}"]`);
    const form = own?.querySelector("form.said-verbs");
    let before = isBehind(li, event) ? li.nextElementSibling : li;
    if (before && !before.matches("li[draggable]")) before = undefined;
    if (!form || li === own || before === own) return;
    const field = (name, value) => {
      const input = form.querySelector(`input[name="${name}"]`) ?? form.appendChild(document.createElement("input"));
      [input.type, input.name, input.value] = ["hidden", name, value];
    };
    if (before) field("before", before.dataset.message);
    const button = document.createElement("button");
    [button.name, button.value, button.hidden] = ["verb", before ? "up" : "last", true];
    form.append(button);
    form.requestSubmit(button);
    button.remove();
  });
})();

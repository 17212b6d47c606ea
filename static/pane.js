// Beside a conversation: what is chosen to stand there comes without the rest of the page, so that the conversation stays where
// it is, and the address says what is shown. Without it the same links load the page.
(() => {
  "use strict";
  const [main, pane] = ["main", "pane"].map((id) => document.getElementById(id));
  if (!main || !pane) return;
  const strip = () => document.getElementById("tabs");
  let shown = location.search, turn = 0;

  // It is kept for the next visit, on whichever device.
  const keep = () => {
    const [{ keep, kept }, tab] = [strip().dataset, new URLSearchParams(location.search).get("pane")];
    if (!keep || !tab || tab === kept) return;
    strip().dataset.kept = tab;
    fetch(keep, { method: "POST", headers: { "hx-request": "true" }, body: new URLSearchParams({ pane: tab }), keepalive: true })
      .catch(() => { /* only this visit has it */ });
  };
  keep();
  // Where the tabs do not fit, the one that is shown is in view.
  const bring = () => {
    for (const tab of strip().querySelectorAll("nav > [aria-current]")) {
      const nav = tab.parentElement;
      const [at, around] = [tab.getBoundingClientRect(), nav.getBoundingClientRect()];
      // What closes the pane stands before the end, with a shadow.
      const end = (nav.querySelector(":scope > form")?.getBoundingClientRect().left ?? around.right) - 12;
      if (at.left < around.left) nav.scrollLeft -= around.left - at.left;
      else if (at.right > end) nav.scrollLeft += at.right - end;
    }
  };
  bring();

  // What stands beside a conversation, at an address of this page: a tab, and a place in it.
  const leadsHere = (url) => url.origin === location.origin && url.pathname === location.pathname
    && [...url.searchParams.keys(), ...new URLSearchParams(location.search).keys()].every((key) => key === "pane" || key === "at");
  const show = async (url, link) => {
    const mine = ++turn;
    const answer = await fetch(`${url.pathname}/pane${url.search}`, { headers: { "hx-request": "true" } }).catch(() => undefined);
    const fresh = answer?.ok && !answer.redirected && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("pane-swap");
    if (mine !== turn) return;
    if (!fresh) return link ? location.assign(url) : location.reload();
    if (link) history.pushState(null, "", url);
    shown = url.search;
    const nav = link?.closest("nav")?.className;
    strip().replaceWith(fresh.querySelector("#tabs"));
    pane.replaceChildren(...fresh.querySelector("#pane").childNodes);
    pane.scrollTop = 0;
    main.dataset.view = fresh.dataset.view;
    document.body.dataset.stream = fresh.dataset.stream;
    for (const part of [strip(), pane]) window.htmx?.process(part);
    bring();
    document.dispatchEvent(new Event("stream"));
    keep();
    // The focus goes on where it was: in the strip, or to what was asked for.
    if (nav) [...strip().querySelectorAll("nav")].find((one) => one.className === nav)?.querySelector("[aria-current]")?.focus();
    else if (url.hash) reveal(url.hash, link?.closest("article.message")?.dataset.seq);
    else if (link) (pane.querySelector("[autofocus]") ?? pane.querySelector("a, button, textarea, input"))?.focus();
  };
  // What a message proposes, if it is still there; else what is proposed at all.
  const reveal = (hash, seq) => {
    const place = document.getElementById(hash.slice(1));
    const target = (seq && place?.querySelector(`[data-message="${CSS.escape(seq)}"]`)) || place?.querySelector("[data-proposal]") || place;
    target?.focus({ preventScroll: true });
    target?.scrollIntoView({ block: "start" });
  };
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("#tabs a[href], #pane a[href], a#gauge[href], .suggestion a[href]");
    const url = link && new URL(link.href);
    if (!url || link.hasAttribute("download") || !leadsHere(url)) return;
    if (url.hash && url.search === "") return;
    event.preventDefault();
    show(url, link);
  });
  addEventListener("popstate", () => {
    turn += 1;
    const url = new URL(location.href);
    if (url.search !== shown && leadsHere(url)) show(url);
    else if (url.search !== shown) location.reload();
  });
  if (location.hash === "#proposals") reveal(location.hash);
})();

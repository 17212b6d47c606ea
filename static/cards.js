// Cards of artifacts are filled when they come into view, and kept when the conversation is drawn anew.
(() => {
  "use strict";
  const entries = document.querySelector(".talk");
  if (!entries || !window.IntersectionObserver) return;

  const MAX_AT_ONCE = 4;
  const known = new Map(); // what was fetched, by address
  const waiting = [];
  const asked = new Set();
  const RETRY_MS = 30_000;
  const failed = new Map(); // when a fetch failed; never again where there is nothing
  let busy = 0;

  const put = (card, html) => {
    card.innerHTML = html;
    card.dataset.filled = "";
  };
  const cards = (address) => document.querySelectorAll(`[data-card="${CSS.escape(address)}"]`);
  const next = () => {
    while (busy < MAX_AT_ONCE && waiting.length) {
      const address = waiting.shift();
      busy += 1;
      fetch(address, { headers: { "hx-request": "true" } })
        .then((answer) => answer.ok ? answer.text() : Promise.reject(answer.status))
        .then((html) => {
          known.set(address, html);
          cards(address).forEach((card) => put(card, html));
        })
        .catch((status) => failed.set(address, status === 404 ? Infinity : Date.now())) // it stays a link to its page
        .finally(() => {
          asked.delete(address);
          busy -= 1;
          next();
        });
    }
  };
  const ask = (address) => {
    if (asked.has(address)) return;
    asked.add(address);
    waiting.push(address);
    next();
  };
  const sight = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      sight.unobserve(target);
      ask(target.dataset.card);
    }
  }, { rootMargin: "200px" });
  const look = () => {
    entries.querySelectorAll("[data-card]").forEach((card) => {
      if (card.dataset.filled !== undefined && card.querySelector("[data-place]")) return;
      const html = known.get(card.dataset.card);
      if (html) put(card, html);
      else if (!asked.has(card.dataset.card) && Date.now() - (failed.get(card.dataset.card) ?? -Infinity) > RETRY_MS) sight.observe(card);
    });
  };
  look();
  // An answer that grows brings none.
  new MutationObserver((changes) => {
    if (changes.some((change) => !change.target.closest?.(".prose"))) look();
  }).observe(entries, { childList: true, subtree: true });

  // Where bytes are depends on the viber's contact: what is not on the Board yet is asked for again.
  const contact = () => document.querySelector("#where .status")?.dataset.state;
  let was = contact();
  const bar = document.getElementById("bar");
  if (bar) {
    new MutationObserver(() => {
      const now = contact();
      if (now === was) return;
      was = now;
      entries.querySelectorAll('[data-card]:has([data-place="viber"], [data-place="offline"])').forEach((card) => {
        known.delete(card.dataset.card);
        ask(card.dataset.card);
      });
    }).observe(bar, { childList: true, subtree: true, attributes: true });
  }
})();

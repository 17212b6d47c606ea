// Runs before anything else in every page and frame: notes whatever was not the page's own doing.
(() => {
  const hits = (window.__hits = []);
  const hit = (what) => { hits.push(String(what).slice(0, 400)); };
  window.pwn = (n) => hit(`executed ${n}`);
  for (const name of ["alert", "confirm", "prompt", "print"]) window[name] = (words) => hit(`${name} ${words}`);
  document.addEventListener("securitypolicyviolation", (event) => {
    hit(`policy ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
  });
  addEventListener("error", (event) => { if (event instanceof ErrorEvent) hit(`error ${event.message}`); });
  addEventListener("unhandledrejection", (event) => hit(`rejected ${event.reason}`));
})();

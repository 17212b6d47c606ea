// What a page does beyond forms and links: local times, drafts, copying, sending with a key. Everything works without it.
(() => {})();

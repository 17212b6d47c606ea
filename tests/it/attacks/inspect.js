// What of the page should not be there. Returns sentences; none when the page is as our templates and the sanitiser make it.
// Hostile texts carry the word "pwn": outside of text it may stand only where a template puts a foreign text.
const words = (text) => new Set(text.trim().split(/\s+/));
const PAGE_TAGS = words(`html head meta title link script body a nav main header div section span b strong p h1 h2 h3 ul ol li
  form input textarea button label select option details summary code pre samp kbd svg use path time table thead tbody tr th td
  meter progress g rect line text aside dialog ins del i dl dt dd fieldset legend figure figcaption caption noscript small article br mark img canvas footer template`);
const PAGE_ATTRIBUTES = words(`class id href rel type src defer charset name content lang role tabindex method action value
  required draggable maxlength placeholder rows formaction formnovalidate popover popovertarget for hidden datetime title open download selected checked disabled
  min max high optimum colspan scope viewbox d shape-rendering autocomplete autocapitalize autofocus enctype spellcheck form multiple accept pattern readonly minlength inputmode
  hx-post hx-get hx-target hx-swap hx-trigger hx-include hx-select hx-disable
  aria-hidden aria-selected aria-expanded aria-controls aria-autocomplete aria-activedescendant aria-label aria-current aria-labelledby aria-live aria-pressed aria-invalid aria-describedby
  data-message data-mode data-key-in data-theme data-live data-stream data-cursor data-place data-lost data-key data-lost-for data-lost-why data-state data-unread
  data-unread-count data-lane data-open data-call data-op data-level data-role data-seq data-open-message data-finished data-copy data-touched
  data-task-state data-waiting data-focus data-draft data-drafting data-enter data-tone data-label data-as data-step data-audit
  data-view data-tab data-asks data-pane data-kept data-keep data-tool data-hold data-artifact data-step-id data-proposal data-path data-hash data-beside data-approval data-kind data-place-words
  data-keys data-palette data-opens data-go data-row data-command data-armed data-member data-token data-invitation data-device data-scripted data-writing data-htmx-powered
   data-card data-filled data-shows data-goal data-drop data-failed alt decoding width height
   data-folds data-extent data-end data-wrap data-wrapped data-address data-comment data-look data-look-again data-brief data-as-of data-count data-lines
   data-cancel data-layer x y x1 x2 y1 y2 preserveaspectratio data-over data-side data-line data-full data-away data-message data-new data-behind data-source data-agent`);
const PROSE_TAGS = words(`p br hr h3 h4 h5 h6 strong em del code pre span a ul ol li blockquote table thead tbody tr th td input sup div`);
const PROSE_ATTRIBUTES = words(`href title rel start align tabindex data-lang type checked disabled class role aria-label id`);
const CLASSES = words(`hl-comment hl-string hl-number hl-keyword hl-name hl-add hl-del scroll-x note note-back`);
const LABELS = new Set(["Done", "To do", "Table", "Back to the text"]);
// A footnote and where it is named: ids of a message's own, and links that stay in the page.
const NOTE_ID = /^m-\d+-\d+-(note|mark)-[a-z0-9_-]{1,32}$/;
const NOTE_LABEL = /^Note [A-Za-z0-9_-]{1,32}$/;
const HX = /^(\/t\/[a-z0-9-]+(\/[\w/?=:.%&-]*)?|this|load|change|toggle once|none|find \.change-diff|outerHTML|outerMorph|innerHTML|closest (form|\.older|\.provider)|#(dock-state|asks|choice|pane-body|machine-sessions|viber-playbooks)|#entries > (\*|:not\(\.newer\))|#m-\d+( \.message-body > :not\(\.message-head\))?|find button)$/;
// Where templates put foreign texts into attributes, and between which tags.
const VALUES = "[data-call], button[form^='pin-'], .steps > a[href^='/t/home?goal='], input[value], option[value], button[aria-label], select[aria-label], a[href^='/t/home/sessions/'], a[href^='/t/home/sessions?'], a[href^='/t/home/search?'], a[href^='/t/home/vibers?'], .card-acts a[aria-label], a[href*='/playbooks/'], a[title^='playbooks/'], form[action*='/playbooks/'], body[data-stream^='/t/home/live?view=vibers&']";
const TEXTS = `title, textarea, option, mark, h1, h2, .tool, code, samp, td, th > a.name, th > .meta, td > .name, td > .meta, td > b, samp > span, .chip, a.cut,
  span.cut, .message-head > b, .message-head > .meta, .notice > span, .notice > span > .meta, .decided > span, .card-view pre, .card-view th, .told, .cnc span, .cause,
  .where a, .where .agent, .matrix th > a, .permissions :is(b, ins, del), .segmented.links > a, .install-on b, .skill-agents label, a.name, .name, .by, .ledger span, .prose, .growing, .bad, summary > span, .meta, li b, .block, .outcome span, dd, strong, a.link, p > span, .status, p, button, .facts, .lead, li > div, dt, label.visually-hidden,
  a.btn > .visually-hidden, .playbook-errors > li, .planned-steps li, .compared :is(ins, del)`;

const wrong = [];
const say = (what, el) => { if (wrong.length < 30) wrong.push(`${what}: ${el.outerHTML?.slice(0, 240)}`); };
const spells = (text) => /pwn/i.test(text);
const isNoteLink = (el) => {
  const href = el.getAttribute("href") ?? "";
  const target = href.startsWith("#") && NOTE_ID.test(href.slice(1)) && document.getElementById(href.slice(1));
  return Boolean(target) && target.closest(".prose") === el.closest(".prose");
};
const own = (el) => [...el.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("");

for (const el of document.querySelectorAll("*")) {
  const tag = el.localName;
  const prose = el.parentElement?.closest(".prose");
  const ours = el.closest(".code-box > button") || el.matches("div.code-box, [data-open] > div.growing, .message-body .prose > div.settled");
  if (prose && !ours) {
    if (!PROSE_TAGS.has(tag) || el.namespaceURI !== "http://www.w3.org/1999/xhtml") say("unexpected tag in prose", el);
    for (const { name, value } of el.attributes) {
      if (!PROSE_ATTRIBUTES.has(name)) say(`unexpected attribute ${name} in prose`, el);
      if (name === "id" && !(tag === "sup" && NOTE_ID.test(value))) say("unexpected id in prose", el);
      if (name === "href" && !/^(https?:\/\/|mailto:)/.test(value) && !isNoteLink(el)) say("unexpected address in prose", el);
      if (name === "class" && [...words(value)].some((word) => !CLASSES.has(word))) say("unexpected class in prose", el);
      if (name === "aria-label" && !LABELS.has(value) && !(isNoteLink(el) && NOTE_LABEL.test(value))) say("unexpected label in prose", el);
      if (name === "role" && value !== "region") say("unexpected role in prose", el);
      if (name === "type" && value !== "checkbox") say("unexpected input in prose", el);
    }
    if (tag === "a" && el.rel !== "noopener nofollow ugc" && !isNoteLink(el)) say("a link that leaks", el);
    continue;
  }
  if (!PAGE_TAGS.has(tag)) say("unexpected tag", el);
  for (const { name, value } of el.attributes) {
    if (!PAGE_ATTRIBUTES.has(name.toLowerCase())) say(`unexpected attribute ${name}`, el);
    if (name.startsWith("hx-") && !HX.test(value)) say(`unexpected ${name}`, el);
    if (["href", "src", "action", "formaction"].includes(name) && !/^(\/(?!\/)|#)/.test(value)) say(`${name} leads away`, el);
    if (spells(value) && !el.matches(VALUES)) say(`a foreign text in ${name}`, el);
  }
  if (spells(own(el)) && !el.matches(TEXTS)) say("a foreign text where none belongs", el);
  if (tag === "script" && (!el.src || el.textContent)) say("a script that is not ours", el);
}
const ids = new Set();
for (const { id } of document.querySelectorAll("[id]")) {
  if (ids.has(id)) wrong.push(`two elements are called ${id}`);
  ids.add(id);
}
for (const el of document.querySelectorAll("form, img, embed, object, iframe")) {
  for (const name of [el.getAttribute("name"), el.id]) if (name && name in Document.prototype) say(`hides document.${name}`, el);
}
if (document.querySelector("style, template, iframe, base")) wrong.push("a style, template, frame or base");
for (const hit of window.__hits ?? ["the hook is not there"]) wrong.push(`HIT ${hit}`);
for (const entry of performance.getEntriesByType("resource")) {
  if (new URL(entry.name).origin !== location.origin) wrong.push(`the page asked for ${entry.name}`);
}
return wrong;

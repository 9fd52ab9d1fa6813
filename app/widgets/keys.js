// One listener for all keys of the page, and the sheet that lists them. All text goes in through textContent.
// What is bound where is kept on `window`: every mounted component runs a module of its own.
const SETTLE_MS = 200; // nobody reads a card faster: an earlier press was meant for the card before it
const PATIENCE_MS = 5000; // after that a press on the same card goes through again; the store refuses a second review
const ARROWS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→" };
const NOT_TYPED = ["button", "checkbox", "radio", "range", "submit", "reset", "color", "file"];

const keys = (window.stepwiserKeys ??= { sets: new Map(), sheet: null });

function typing(node) {
  if (!(node instanceof Element)) return false;
  if (node.tagName === "INPUT") return !NOT_TYPED.includes(node.type);
  return node.tagName === "TEXTAREA" || node.tagName === "SELECT" || node.isContentEditable;
}

function busy(node) {
  if (keys.sheet?.open) return true;
  if (document.querySelector('[role="dialog"], [aria-modal="true"], dialog[open], [role="listbox"]')) return true;
  return Boolean(node.closest?.("[data-own-keys]"));
}

function pressed(event) {
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

function widget(target) {
  return document.querySelector(`.st-key-${CSS.escape(target)}`);
}

// Puts the cursor at the end of a text field; false where the widget has none.
function focusField(target) {
  const field = widget(target)?.querySelector("textarea, input:not([type=checkbox])");
  if (!field) return false;
  field.focus();
  field.setSelectionRange?.(field.value.length, field.value.length);
  return true;
}

function act(set, action) {
  const now = performance.now();
  if (action.once) {
    if (now - set.since < SETTLE_MS || now - set.used < PATIENCE_MS) return;
  }
  if (focusField(action.target)) return;
  const box = widget(action.target);
  const button = box?.querySelector("input[type=checkbox]") ?? box?.querySelector("button, a[href]");
  if (!button || button.disabled) return;
  if (action.once) set.used = now;
  button.click();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const node = event.composedPath()[0];
  if (typing(node)) {
    if (event.key === "Escape") node.blur();
    return;
  }
  if (busy(node)) return;
  const key = pressed(event);
  if (key in ARROWS && node.closest?.('[role="slider"], [role="radio"], [role="tab"], input')) return;
  let found = key === "?" && keys.sheet ? keys.sheet.show : null;
  for (const set of keys.sets.values()) {
    if (found || !set.host.isConnected) continue;
    const action = set.actions.find((one) => one.key === key);
    if (action) found = () => act(set, action);
  }
  if (!found) return;
  event.preventDefault();
  event.stopImmediatePropagation(); // Streamlit has keys of its own
  if (!event.repeat) found();
}

function bind(data, host) {
  const before = keys.sets.get(data.set);
  const same = before?.card === data.card;
  keys.sets.set(data.set, {
    host,
    card: data.card,
    actions: data.actions,
    since: same ? before.since : performance.now(),
    used: same ? before.used : -Infinity,
  });
  if (data.focus) requestAnimationFrame(() => focusField(data.focus));
  return () => {
    if (keys.sets.get(data.set)?.host === host) keys.sets.delete(data.set);
  };
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function button(className, text, onClick) {
  const node = element("button", className, text);
  node.type = "button";
  node.onclick = onClick;
  return node;
}

function shown(key) {
  return key in ARROWS ? ARROWS[key] : key ? key.toUpperCase() : "–";
}

// One row: the key, which can be pressed to choose another, and what it does.
function row(one, here, sheet) {
  const line = element("li", here ? "here" : "elsewhere");
  const key = button(one.own ? "key own" : "key", shown(one.key), () => sheet.ask(one, key));
  key.setAttribute("aria-label", `${one.words}: ${shown(one.key)}. Choose another key`);
  line.append(key, element("span", "words", one.words));
  return line;
}

function list(sheet) {
  const bound = new Set();
  for (const set of keys.sets.values()) {
    if (set.host.isConnected) set.actions.forEach((one) => bound.add(one.key));
  }
  const groups = element("div", "groups");
  for (const group of new Set(sheet.data.actions.map((one) => one.group))) {
    const part = element("section");
    const rows = element("ul");
    for (const one of sheet.data.actions) {
      if (one.group === group) rows.append(row(one, bound.has(one.key), sheet));
    }
    part.append(element("h3", "", group), rows);
    groups.append(part);
  }
  return groups;
}

function draw(sheet) {
  const head = element("header");
  head.append(element("h2", "", "Keys"), button("close", "Close", () => sheet.dialog.close()));
  const foot = element("footer");
  foot.append(
    element("p", "", "Press a key here to choose another; one that is taken changes places. Faint ones do nothing on this page. No key acts while you type; Esc leaves a text field."),
    button("usual", "Usual keys", () => sheet.choose({ action: "", key: "" })),
  );
  const said = element("p", "said", sheet.data.said);
  said.setAttribute("role", "status");
  sheet.said = said;
  sheet.dialog.replaceChildren(head, said, list(sheet), foot);
}

function makeSheet(host) {
  const dialog = element("dialog");
  dialog.setAttribute("aria-label", "Keys");
  const sheet = { dialog, waiting: null, data: null, said: null, choose: () => {} };
  Object.defineProperty(sheet, "open", { get: () => dialog.open });
  sheet.show = () => {
    draw(sheet);
    dialog.showModal();
  };
  sheet.ask = (one, key) => {
    sheet.waiting = one;
    key.classList.add("waiting");
    sheet.said.textContent = `Press the new key for “${one.words}”. Esc: leave it.`;
  };
  dialog.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["Shift", "Tab"].includes(event.key)) return;
    const one = sheet.waiting;
    if (one && !event.repeat) {
      event.preventDefault();
      event.stopPropagation();
      sheet.waiting = null;
      if (event.key !== "Escape") sheet.choose({ action: one.action, key: pressed(event) });
      draw(sheet);
    } else if (event.key === "?") dialog.close();
  };
  dialog.onclose = () => (sheet.waiting = null);
  host.append(button("open", "? Keys", sheet.show), dialog);
  return sheet;
}

function sheetOf(component, host) {
  const sheet = (host.stepwiserSheet ??= makeSheet(host));
  sheet.data = component.data;
  sheet.choose = (choice) => component.setTriggerValue("chosen", choice);
  if (sheet.dialog.open && !sheet.waiting) draw(sheet);
  keys.sheet = sheet;
  return () => {
    if (keys.sheet === sheet) keys.sheet = null;
  };
}

export default function (component) {
  if (keys.listener) window.removeEventListener("keydown", keys.listener, true);
  keys.listener = onKey;
  window.addEventListener("keydown", onKey, true);
  const host = component.parentElement.querySelector(".keys, .sheet");
  return component.data.sheet ? sheetOf(component, host) : bind(component.data, host);
}

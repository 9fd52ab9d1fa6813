// A text whose words can be marked: drag with the mouse, or arrows (with Shift: extend), Enter, Esc, Delete.
// All text goes in through textContent. Offsets are those that Python gave with each word.
function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function isSpace(word) {
  return !word[2].trim();
}

// The next word that is not a space, from `at` in direction `step`; `at` itself where there is none.
function step(words, at, by) {
  let next = at + by;
  while (next >= 0 && next < words.length && isSpace(words[next])) next += by;
  return next >= 0 && next < words.length ? next : at;
}

function first(words) {
  return Math.max(0, words.findIndex((word) => !isSpace(word)));
}

function paint(state) {
  const [from, to] = [Math.min(state.anchor, state.head), Math.max(state.anchor, state.head)];
  state.nodes.forEach((node, i) => {
    node.classList.toggle("marked", i >= from && i <= to);
    node.classList.toggle("begin", i === from);
    node.classList.toggle("end", i === to);
  });
  const text = state.words.slice(from, to + 1).map((word) => word[2]).join("");
  state.said.textContent = `Marked: ${text}`;
}

function send(state, nothing) {
  const [from, to] = [Math.min(state.anchor, state.head), Math.max(state.anchor, state.head)];
  const span = nothing ? "none" : [state.words[from][0], state.words[to][1]];
  state.component.setTriggerValue("picked", span);
}

function onKey(state, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (by) {
    state.head = step(state.words, state.head, by);
    if (!event.shiftKey) state.anchor = state.head;
    paint(state);
  } else if (event.key === "Home" || event.key === "End") {
    state.head = event.key === "Home" ? first(state.words) : step(state.words, state.words.length, -1);
    if (!event.shiftKey) state.anchor = state.head;
    paint(state);
  } else if (event.key === "Enter" && !event.repeat) send(state, false);
  else if (event.key === "Escape" && !event.repeat) state.component.setTriggerValue("picked", "leave");
  else if (["Delete", "Backspace"].includes(event.key) && !event.repeat) send(state, true);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function onMouse(state, event) {
  const at = state.nodes.indexOf(event.composedPath()[0]);
  if (at < 0) return;
  if (event.type === "mousedown") {
    event.preventDefault();
    state.box.focus();
    state.dragging = true;
    if (!event.shiftKey) state.anchor = at;
    state.head = at;
    paint(state);
  } else if (state.dragging && event.type === "mouseover") {
    state.head = at;
    paint(state);
  } else if (state.dragging && event.type === "mouseup") {
    state.dragging = false;
    send(state, false);
  }
}

export default function (component) {
  const host = component.parentElement.querySelector(".span");
  const data = JSON.stringify(component.data);
  if (host.drawn?.data === data) {
    host.drawn.component = component;
    return;
  }
  const words = component.data.words;
  const box = element("div", "text");
  box.tabIndex = 0;
  box.dataset.ownKeys = "yes";
  box.setAttribute("role", "application");
  box.setAttribute("aria-label", "Mark the error: arrows move, Shift and arrows extend, Enter keeps, Delete removes, Esc leaves");
  const nodes = words.map((word) => element("span", "", word[2]));
  box.append(...nodes);
  const said = element("div", "said");
  said.setAttribute("role", "status");
  const span = component.data.span;
  const at = (offset) => words.findIndex((word) => word[0] <= offset && offset < word[1]);
  const state = {
    component, words, nodes, box, said, data, dragging: false,
    anchor: span ? Math.max(0, at(span[0])) : first(words),
    head: span ? Math.max(0, at(span[1] - 1)) : first(words),
  };
  host.drawn = state;
  box.onkeydown = (event) => onKey(state, event);
  for (const type of ["mousedown", "mouseover", "mouseup"]) box.addEventListener(type, (event) => onMouse(state, event));
  host.replaceChildren(box, element("p", "help", "Drag over the error, or: arrows move, Shift extends, Enter keeps, Delete removes the mark, Esc leaves."), said);
  paint(state);
  box.focus({ preventScroll: true });
}

// Draws rewards as bars in plain DOM. All text goes in through textContent: nothing here is ever parsed as HTML.
const drawn = new WeakMap();

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

// One history entry, no reload: Streamlit follows the address as it does when Back or Forward is pressed.
function open(href) {
  window.history.pushState({}, "", href);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

function bar(one, direction) {
  const box = element("span", `bar ${direction} ${one.tone}`);
  if (one.title) box.title = one.title;
  const fill = element("span", "fill");
  fill.style.setProperty("--share", one.share);
  box.append(fill, element("span", "number", one.text));
  return box;
}

function strips(data) {
  const list = element("div", "strips");
  list.setAttribute("role", "table");
  list.setAttribute("aria-label", data.label);
  for (const row of data.rows) {
    const line = element("div", row.chosen ? "strip chosen" : "strip");
    line.setAttribute("role", "row");
    line.dataset.solution = row.id;
    const head = element("div", "head");
    head.setAttribute("role", "rowheader");
    const link = element("a", "open", row.name);
    link.href = row.href;
    if (row.chosen) link.setAttribute("aria-current", "true");
    link.onclick = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      open(row.href);
    };
    head.append(link, element("span", row.right ? "outcome right" : "outcome wrong", row.outcome));
    const cells = element("div", "cells");
    for (const one of row.bars) {
      const cell = element("div", "cell");
      cell.setAttribute("role", "cell");
      cell.append(bar(one, "upright"), element("span", "below", one.below));
      cells.append(cell);
    }
    line.append(head, cells);
    list.append(line);
  }
  return list;
}

function lines(data) {
  const table = element("table", "lines");
  table.setAttribute("aria-label", data.label);
  const head = element("tr");
  for (const title of ["Chunk", "Score", ...data.columns]) {
    const th = element("th", "", title);
    th.scope = "col";
    head.append(th);
  }
  const thead = element("thead");
  thead.append(head);
  const body = element("tbody");
  for (const row of data.rows) {
    const tr = element("tr");
    tr.dataset.chunk = row.idx;
    const text = element("td", "chunk");
    text.append(element("span", "idx", String(row.idx)), element("span", "text", row.text));
    const score = element("td", "score");
    score.dataset.title = "Score";
    score.append(element("span", `sign ${{ "+": "right", "-": "wrong" }[row.sign] || ""}`, row.score));
    tr.append(text, score);
    row.bars.forEach((one, i) => {
      const td = element("td", "bars");
      td.dataset.title = data.columns[i];
      td.append(bar(one, "level"));
      tr.append(td);
    });
    body.append(tr);
  }
  table.append(thead, body);
  return table;
}

export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".rewards");
  const text = JSON.stringify(data);
  if (drawn.get(host) === text) return; // an unchanged refresh keeps focus and selection
  drawn.set(host, text);
  const focused = host.getRootNode().activeElement?.closest?.(".strip")?.dataset.solution;
  host.replaceChildren(data.mode === "strips" ? strips(data) : lines(data));
  if (focused) host.querySelector(`.strip[data-solution="${focused}"] a`)?.focus();
}

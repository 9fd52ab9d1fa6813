// Draws a table of rows as plain DOM. All text goes in through textContent: nothing here is ever parsed as HTML.
const SVG = "http://www.w3.org/2000/svg";
const drawn = new WeakMap();

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function chips(list) {
  const box = element("span", "chips");
  for (const chip of list) {
    const node = element("span", `chip ${chip.tone}`, chip.text);
    if (chip.title) node.title = chip.title;
    box.append(node);
  }
  return box;
}

// Q after every chunk in [0, 1]; null is a gap. The steepest fall is drawn in red.
function spark(cell) {
  const width = 96, height = 26, pad = 4;
  const q = cell.q, worst = cell.worst;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "spark", role: "img" });
  root.setAttribute("aria-label", cell.alt);
  const title = svg("title", {});
  title.textContent = cell.alt;
  root.append(title);
  const x = (i) => pad + (i * (width - 2 * pad)) / Math.max(q.length - 1, 1);
  const y = (v) => height - pad - v * (height - 2 * pad);
  for (const v of [0, 1]) root.append(svg("line", { x1: 0, x2: width, y1: y(v), y2: y(v), class: "rail" }));
  for (let i = 1; i < q.length; i++) {
    if (q[i] === null || q[i - 1] === null) continue;
    const kind = i === worst ? "fall" : "line";
    root.append(svg("line", { x1: x(i - 1), y1: y(q[i - 1]), x2: x(i), y2: y(q[i]), class: kind }));
  }
  q.forEach((v, i) => {
    if (v === null) return;
    const alone = (i === 0 || q[i - 1] === null) && (i === q.length - 1 || q[i + 1] === null);
    if (i === worst) root.append(svg("circle", { cx: x(i), cy: y(v), r: 2.6, class: "fallen" }));
    else if (alone) root.append(svg("circle", { cx: x(i), cy: y(v), r: 1.8, class: "point" }));
  });
  return root;
}

function progress(cell) {
  const box = element("span", "progress");
  const bar = element("span", `bar ${cell.tone}`);
  const fill = element("span", "fill");
  if (cell.share === null) fill.classList.add("unknown");
  else fill.style.width = `${Math.round(cell.share * 1000) / 10}%`;
  bar.append(fill);
  if (cell.bar) box.append(bar);
  box.append(element("span", "beside", cell.text));
  return box;
}

// Lines of text with the words that were searched for marked; where each line stands is said before it.
function excerpts(list) {
  const box = element("span", "excerpts");
  for (const one of list) {
    const line = element("span", "excerpt");
    if (one.place) line.append(element("span", "place", one.place), " ");
    for (const [text, marked] of one.parts) line.append(marked ? element("mark", "", text) : text);
    box.append(line);
  }
  return box;
}

function content(cell, kind) {
  if (cell === null || cell === undefined) return element("span", "muted", "–");
  if (kind === "chips") return chips(cell);
  if (kind === "spark") return spark(cell);
  if (kind === "progress") return progress(cell);
  if (kind === "excerpts") return excerpts(cell);
  return element("span", kind, cell);
}

// One history entry, no reload: Streamlit follows the address as it does when Back or Forward is pressed.
function open(href) {
  window.history.pushState({}, "", href);
  window.dispatchEvent(new PopStateEvent("popstate"));
}

function line(row, columns) {
  const tr = element("tr");
  tr.dataset.row = row.id;
  columns.forEach((column, i) => {
    const td = element("td", `is-${column.kind} ${column.narrow}`);
    td.dataset.title = column.title;
    if (i === 0 && row.href) {
      const link = element("a", "open", row.cells[0]);
      link.href = row.href;
      link.setAttribute("aria-label", row.label);
      link.onclick = (event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
        event.preventDefault();
        event.stopPropagation();
        open(row.href);
      };
      td.append(link);
    } else {
      if (row.cells[i] === null) td.classList.add("void");
      td.append(content(row.cells[i], column.kind));
    }
    tr.append(td);
  });
  if (row.href) {
    tr.onclick = () => {
      if (!String(window.getSelection())) open(row.href);
    };
  } else tr.classList.add("still");
  return tr;
}

export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".rows");
  const text = JSON.stringify(data);
  if (drawn.get(host) === text) return; // an unchanged refresh keeps focus and selection
  drawn.set(host, text);
  const focused = host.getRootNode().activeElement?.closest?.("tr")?.dataset.row;
  const table = element("table");
  table.setAttribute("aria-label", data.label);
  const head = element("tr");
  for (const column of data.columns) {
    const th = element("th", `is-${column.kind} ${column.narrow}`, column.title);
    th.scope = "col";
    if (column.help) th.title = column.help;
    head.append(th);
  }
  const thead = element("thead");
  thead.append(head);
  const tbody = element("tbody");
  for (const row of data.rows) tbody.append(line(row, data.columns));
  table.append(thead, tbody);
  host.replaceChildren(table);
  if (focused) host.querySelector(`tr[data-row="${focused}"] a`)?.focus();
}

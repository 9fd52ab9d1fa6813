// Draws a table of counts whose cells are links. All text goes in through textContent: nothing is parsed as HTML.
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

function head(text, scope) {
  const th = element("th", scope, text);
  th.scope = scope;
  return th;
}

function inside(cell, total) {
  const share = total ? `${Math.round((100 * cell.n) / total)} %` : "";
  const parts = [element("span", "n", cell.n.toLocaleString("en"))];
  if (cell.mark) parts.unshift(element("span", "mark", cell.mark));
  parts.push(element("span", "share", share));
  return parts;
}

function number(cell, total) {
  const td = element("td", `${cell.tone}${cell.chosen ? " chosen" : ""}`);
  td.style.setProperty("--share", total ? cell.n / total : 0);
  const opens = cell.href && cell.n;
  const box = element(opens ? "a" : "span", "box");
  box.append(...inside(cell, total));
  td.append(box);
  if (!opens) return td;
  box.href = cell.href;
  box.setAttribute("aria-label", cell.said);
  if (cell.chosen) box.setAttribute("aria-current", "true");
  box.onclick = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(cell.href);
  };
  return td;
}

export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".matrix");
  const text = JSON.stringify(data);
  if (drawn.get(host) === text) return;
  drawn.set(host, text);
  const focused = host.getRootNode().activeElement?.getAttribute?.("href");
  const table = element("table");
  table.setAttribute("aria-label", data.label);
  const above = element("tr");
  above.append(element("td", "corner"));
  const title = element("th", "across", data.across);
  title.colSpan = data.columns.length;
  title.scope = "colgroup";
  above.append(title);
  const names = element("tr");
  names.append(head(data.down, "down"));
  for (const name of data.columns) names.append(head(name, "col"));
  const thead = element("thead");
  thead.append(above, names);
  const tbody = element("tbody");
  data.rows.forEach((name, i) => {
    const tr = element("tr");
    tr.append(head(name, "row"));
    for (const cell of data.cells[i]) tr.append(number(cell, data.total));
    tbody.append(tr);
  });
  table.append(thead, tbody);
  host.replaceChildren(table);
  if (focused) host.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

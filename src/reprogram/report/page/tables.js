// Tables that can be sorted by each column and searched; those of the summary are made by Python and only brought to life.

/** Make the headings of a table into buttons that sort it; cells may say their value in data-value. */
function sortable(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = el("button", { type: "button", onclick: () => sort(table, heads, column) }, ...head.childNodes);
    head.replaceChildren(button);
  });
  return table;
}

function sort(table, heads, column) {
  const head = heads[column];
  const numeric = head.classList.contains("n");
  const before = head.getAttribute("aria-sort");
  // numbers are mostly looked at from the largest down
  const order = before ? (before === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const value = (row) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent;
    return numeric ? parseFloat(text.replaceAll(",", "")) : text;
  };
  const compare = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // what is not known stands last
    return sign * (a - b);
  };
  table.tBodies[0].append(...Array.from(table.tBodies[0].rows).sort(compare));
}

/** A search box that leaves the rows of a table whose text holds all the words, and tells how many. */
function searchBox(table, what) {
  const told = el("span", { class: "small soft", "aria-live": "polite" });
  const rows = Array.from(table.tBodies[0].rows);
  const find = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const held = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => held.includes(word));
      count += !row.hidden;
    }
    told.textContent = words.length ? `${count} of ${rows.length}` : plural(rows.length, "row");
  };
  const input = el("input", { type: "search", placeholder: `Search ${what}`, "aria-label": `Search ${what}`, class: "grow",
    oninput: (event) => find(event.target.value) });
  find("");
  return el("div", { class: "row controls" }, input, told);
}

/** A table from headings [text, "n" for numbers] and rows of cells: nodes, texts, or [node or text, value to sort by]. */
function table(headings, rows, { caption, rowsMade } = {}) {
  const classes = headings.map(([, kind, more]) => [kind, more].filter(Boolean).join(" ") || null);
  const body = rows.map((cells, number) => {
    const row = el("tr", {}, cells.map((cell, column) => {
      const [content, value] = Array.isArray(cell) ? cell : [cell, null];
      return el("td", { class: classes[column], "data-value": value === null || Number.isNaN(value) ? (value === null ? null : "") : String(value) }, content);
    }));
    if (rowsMade) rowsMade(row, number);
    return row;
  });
  return sortable(el("table", {},
    caption ? el("caption", {}, caption) : null,
    el("thead", {}, el("tr", {}, headings.map(([text], column) => el("th", { scope: "col", class: classes[column] }, text)))),
    el("tbody", {}, body)));
}

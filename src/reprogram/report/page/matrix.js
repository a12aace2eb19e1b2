// A matrix of amounts as shades, for two label sets of any size: read by pointer, by touch and by arrow keys.

/**
 * @param {object} given rows and columns (names), cells (function giving [row, column, shade −1…1, class name] entries),
 *   tell (function of row and column that gives nodes for the readout), rowText and columnText (what the sides are).
 */
function matrixView({ rows, columns, cells, tell, rowText, columnText, label }) {
  const readout = el("p", { class: "readout", "aria-live": "polite" }, `Point at a cell, or move with the arrow keys. Rows: ${rowText}. Columns: ${columnText}.`);
  let at = null;
  let cursor = null;
  let layout = null;

  const look = (row, column) => {
    at = [Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column))];
    place();
    readout.replaceChildren(...tell(...at));
  };
  const place = () => {
    if (!at || !cursor) return;
    const { left, top, width, height } = layout;
    cursor.across.setAttribute("y", top + at[0] * height);
    cursor.down.setAttribute("x", left + at[1] * width);
    cursor.box.setAttribute("x", left + at[1] * width);
    cursor.box.setAttribute("y", top + at[0] * height);
    for (const part of Object.values(cursor)) part.removeAttribute("visibility");
  };

  const chart = drawing((width) => {
    const longest = (texts) => Math.max(...texts.map((text) => Array.from(text).length));
    const space = Math.min(150, Math.max(40, width * 0.26), 14 + 6.2 * longest(rows));
    const named = (width - space) / Math.max(columns.length, 1) >= 12;
    const side = Math.min(56, (width - (named ? space : 18)) / Math.max(columns.length, 1));
    // many rows are as low as columns are narrow; few rows stay high enough for their names
    const height = rows.length <= 45 ? Math.max(14, Math.min(side, 26)) : Math.min(side, 640 / rows.length);
    const rowNames = height >= 11;
    const left = rowNames ? space : 18;
    const columnWidth = Math.min(56, (width - left) / Math.max(columns.length, 1));
    const top = named && columnWidth >= 12 ? Math.min(84, 16 + 4.9 * longest(columns)) : 18;
    layout = { left, top, width: columnWidth, height };
    const total = { width: left + columnWidth * columns.length, height: top + height * rows.length + 2 };
    const node = svg("svg", { viewBox: `0 0 ${width} ${total.height}`, width, height: total.height, tabindex: 0, role: "application", "aria-roledescription": "matrix", "aria-label": `${label}; move with the arrow keys` });
    node.append(svg("rect", { class: "ground", x: left, y: top, width: columnWidth * columns.length, height: height * rows.length }));
    const shapes = new Map(); // one path for each shade: thousands of cells stay light
    for (const [row, column, shade, tone] of cells()) {
      const level = Math.ceil(16 * Math.min(1, Math.abs(shade)));
      if (!level) continue;
      const name = `${tone} ${level}`;
      const path = `M${(left + column * columnWidth).toFixed(2)} ${(top + row * height).toFixed(2)}h${columnWidth.toFixed(2)}v${height.toFixed(2)}h${(-columnWidth).toFixed(2)}z`;
      shapes.set(name, (shapes.get(name) || "") + path);
    }
    for (const [name, path] of shapes) {
      const [tone, level] = name.split(" ");
      node.append(svg("path", { d: path, class: tone, "fill-opacity": (0.1 + (0.9 * level) / 16).toFixed(3) }));
    }
    if (rowNames) rows.forEach((text, row) => node.append(svg("text", { x: left - 6, y: top + row * height + height / 2 + 4, "text-anchor": "end", "font-size": 11 }, short(text, Math.floor(left / 6.4)))));
    else node.append(svg("text", { transform: `translate(11 ${top + (height * rows.length) / 2}) rotate(-90)`, "text-anchor": "middle" }, `${rowText} →`));
    if (top > 18) columns.forEach((text, column) => node.append(svg("text", { transform: `translate(${left + column * columnWidth + columnWidth / 2 + 3} ${top - 6}) rotate(-52)`, "font-size": 11 }, short(text, 15))));
    else node.append(svg("text", { x: left, y: 11 }, `${columnText} →`));
    cursor = {
      across: svg("rect", { class: "mark", x: left, y: top, width: columnWidth * columns.length, height, "stroke-opacity": 0.35, visibility: "hidden" }),
      down: svg("rect", { class: "mark", x: left, y: top, width: columnWidth, height: height * rows.length, "stroke-opacity": 0.35, visibility: "hidden" }),
      box: svg("rect", { class: "mark", x: left, y: top, width: columnWidth, height, visibility: "hidden" }),
    };
    node.append(...Object.values(cursor));
    const point = (event) => {
      const box = node.getBoundingClientRect();
      const scale = width / box.width;
      const row = Math.floor(((event.clientY - box.top) * scale - top) / height);
      const column = Math.floor(((event.clientX - box.left) * scale - left) / columnWidth);
      if (row >= 0 && row < rows.length && column >= 0 && column < columns.length) look(row, column);
    };
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    node.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [row, column] = at || [0, 0];
      if (!at) look(0, 0);
      else look(row + step[0], step[1] === Infinity ? columns.length - 1 : step[1] === -Infinity ? 0 : column + step[1]);
    });
    place();
    return node;
  });
  const node = el("div", {}, chart, readout);
  node.redraw = () => {
    chart.redraw();
    if (at) readout.replaceChildren(...tell(...at));
  };
  return node;
}

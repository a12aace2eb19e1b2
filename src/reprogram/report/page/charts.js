// Charts as SVG, drawn for the width that there is: lines over epochs, reliability, accuracy over coverage, bars.

const DASHES = ["", "dash", "dots"];

/** A short piece of line that stands for a series in a legend. */
function key(entries) {
  return el("div", { class: "key" }, entries.map(([text, tone, dash]) => el("span", {},
    svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
      svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, class: `line l${tone} ${DASHES[dash || 0]}` })), text)));
}

/** Axes with a frame: gives the group to draw in and the scales. */
function axes({ width, height, x, y, xText, yText, xTicks, yTicks, xShow, yShow, left = 46 }) {
  const area = { left, right: 12, top: 28, bottom: 40 };
  const inner = { width: width - area.left - area.right, height: height - area.top - area.bottom };
  const toX = (value) => area.left + ((value - x[0]) / (x[1] - x[0] || 1)) * inner.width;
  const toY = (value) => area.top + inner.height - ((value - y[0]) / (y[1] - y[0] || 1)) * inner.height;
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const tick of yTicks) {
    node.append(
      svg("line", { class: "axis", x1: area.left, x2: width - area.right, y1: toY(tick), y2: toY(tick) }),
      svg("text", { x: area.left - 7, y: toY(tick) + 4, "text-anchor": "end" }, yShow(tick)));
  }
  for (const tick of xTicks) {
    node.append(
      svg("line", { class: "axis", x1: toX(tick), x2: toX(tick), y1: height - area.bottom, y2: height - area.bottom + 4 }),
      svg("text", { x: toX(tick), y: height - area.bottom + 17, "text-anchor": "middle" }, xShow(tick)));
  }
  node.append(
    svg("text", { x: area.left + inner.width / 2, y: height - 4, "text-anchor": "middle" }, xText),
    svg("text", { x: 0, y: 11, class: "strong" }, yText));
  return { node, toX, toY, area, inner };
}

/** Lines over epochs: series are { text, values (null where there is none), tone, dash }. */
function lineChart({ title, epochs, series, share, mark, height = 220 }) {
  const drawn = series.filter((one) => one.values.some((value) => value !== null));
  if (!drawn.length) return null;
  const all = drawn.flatMap((one) => one.values.filter((value) => value !== null));
  const top = Math.max(...all);
  const low = share ? Math.min(...all) : Math.min(0, ...all);
  const y = share ? [Math.max(0, Math.floor(10 * low - 0.2) / 10), Math.min(1, Math.ceil(10 * top + 0.2) / 10)] : [low, top * 1.05 || 1];
  const last = Math.max(...epochs.map((own) => own[own.length - 1]));
  const first = Math.min(...epochs.map((own) => own[0]));
  const chart = drawing((width) => {
    const plot = axes({
      width, height, x: [first, Math.max(last, first + 1)], y, xText: "epoch", yText: title,
      xTicks: ticks(first, last, Math.max(2, Math.min(8, width / 70))).filter(Number.isInteger), yTicks: ticks(...y, 4),
      xShow: (tick) => tick, yShow: share ? (tick) => percent(tick, 0) : (tick) => Number(tick.toPrecision(3)),
    });
    if (typeof mark === "number" && mark >= first) {
      plot.node.append(svg("line", { class: "ideal", x1: plot.toX(mark), x2: plot.toX(mark), y1: plot.area.top, y2: height - plot.area.bottom }));
    }
    drawn.forEach((one) => {
      const own = epochs[one.run || 0];
      const points = one.values.map((value, place) => (value === null ? null : [plot.toX(own[place]), plot.toY(value), own[place], value])).filter(Boolean);
      const tone = one.tone % 6;
      plot.node.append(svg("polyline", { class: `line l${tone} ${DASHES[one.dash || 0]}`, points: points.map(([x, at]) => `${x.toFixed(1)},${at.toFixed(1)}`).join(" ") }));
      if (points.length < 30) points.forEach(([x, at, epoch, value]) => plot.node.append(svg("circle", { class: `l${tone}`, cx: x, cy: at, r: 2.6 },
        svg("title", {}, `${one.text}, epoch ${epoch}: ${share ? percent(value) : amount(value)}`))));
    });
    plot.node.setAttribute("aria-label", `${title} per epoch: ` + drawn.map((one) => {
      const known = one.values.filter((value) => value !== null);
      const shown = share ? percent : amount;
      return `${one.text} from ${shown(known[0])} to ${shown(known[known.length - 1])}`;
    }).join("; "));
    return plot.node;
  });
  return el("div", {}, key(drawn.map((one) => [one.text, one.tone % 6, one.dash])), chart);
}

/** Accuracy against confidence in bins [n, mean confidence, right]: on the diagonal, words are true. */
function reliabilityChart(bins) {
  const most = Math.max(...bins.map(([n]) => n), 1);
  return drawing((width) => {
    const size = Math.min(width, 420);
    const plot = axes({
      width: size, height: Math.round(size * 0.78), x: [0, 1], y: [0, 1], xText: "confidence", yText: "share that was right",
      xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: [0, 0.25, 0.5, 0.75, 1], xShow: (tick) => percent(tick, 0), yShow: (tick) => percent(tick, 0),
    });
    plot.node.append(svg("line", { class: "ideal", x1: plot.toX(0), y1: plot.toY(0), x2: plot.toX(1), y2: plot.toY(1) }));
    bins.forEach(([n, confidence, right]) => {
      if (!n) return;
      const [low, high] = wilson(right, n);
      plot.node.append(
        svg("line", { class: "line l0", "stroke-opacity": 0.45, x1: plot.toX(confidence), x2: plot.toX(confidence), y1: plot.toY(low), y2: plot.toY(high) }),
        svg("circle", { class: "l0", cx: plot.toX(confidence), cy: plot.toY(right / n), r: 2.5 + 5 * Math.sqrt(n / most) },
          svg("title", {}, `${plural(n, "answer")} of mean confidence ${percent(confidence)}: ${percent(right / n)} right`)));
    });
    plot.node.setAttribute("aria-label", "Reliability diagram: " + bins.filter(([n]) => n).map(([n, confidence, right]) =>
      `${percent(confidence, 0)} sure, ${percent(right / n, 0)} right of ${n}`).join("; "));
    return plot.node;
  });
}

/** Accuracy over coverage as the least confidence grows, with a mark where the slider stands. */
function coverageChart(confidence, place) {
  const points = [];
  for (let least = 0; least <= 1000; least += 5) {
    const { kept, right, n } = abstention(confidence, least);
    if (kept) points.push([kept / n, right / kept]);
  }
  const low = Math.max(0, Math.floor(10 * Math.min(...points.map((point) => point[1]))) / 10 - 0.1);
  return drawing((width) => {
    const size = Math.min(width, 460);
    const plot = axes({
      width: size, height: Math.round(size * 0.6), x: [0, 1], y: [low, 1], xText: "coverage: share of images that get an answer", yText: "accuracy of the answers",
      xTicks: [0, 0.25, 0.5, 0.75, 1], yTicks: ticks(low, 1, 4), xShow: (tick) => percent(tick, 0), yShow: (tick) => percent(tick, 0),
    });
    plot.node.append(svg("polyline", { class: "line l0", points: points.map(([x, y]) => `${plot.toX(x).toFixed(1)},${plot.toY(y).toFixed(1)}`).join(" ") }));
    const { kept, right, n } = abstention(confidence, place());
    if (kept) plot.node.append(svg("circle", { class: "l1", cx: plot.toX(kept / n), cy: plot.toY(right / kept), r: 6 }));
    plot.node.setAttribute("aria-label", "Accuracy over coverage");
    return plot.node;
  });
}

/** Amounts as bars: entries are [node, value, text]; negative ones are orange and carry their sign in the text. */
function bars(entries, most) {
  const scale = most || Math.max(...entries.map(([, value]) => Math.abs(value)), 1e-12);
  return el("div", { class: "bars" }, entries.flatMap(([label, value, text]) => {
    const bar = el("i", { class: value < 0 ? "minus" : null });
    bar.style.width = `${(100 * Math.min(1, Math.abs(value) / scale)).toFixed(2)}%`;
    return [el("span", {}, label), el("span", { class: "track" }, bar), el("span", { class: "v" }, text)];
  }));
}

/** An accuracy with its interval as a small bar. */
function intervalBar(share, low, high) {
  const range = el("i");
  range.style.left = `${100 * low}%`;
  range.style.width = `${100 * (high - low)}%`;
  const point = el("b");
  point.style.left = `${100 * share}%`;
  return el("span", { class: "interval", role: "img", "aria-label": `95 % interval ${percent(low)} to ${percent(high)}` }, range, point);
}

// The mapping: which source labels stand for a class, ω as a picture, and λ of BLM, which computes ω anew from J.

/** What the page knows of a run's ω, now: as it was stored, or as λ says. Whoever shows it listens for changes. */
class Weights {
  constructor(run) {
    this.run = run;
    this.listeners = [];
    this.joint = run.joint && run.joint.values ? unpackedJoint(run.joint) : null;
    this.smoothing = run.joint ? run.joint.smoothing : null;
    this.places = new Map(); // the row of J of each label of the page
    if (this.joint) {
      this.joint.labels.forEach((label, row) => this.places.set(label, row));
      this.solve();
    }
  }

  solve() {
    this.omega = bayes(this.joint, this.smoothing);
    this.cells = new Map();
    this.joint.values.forEach((_, entry) => this.cells.set(this.joint.rows[entry] * this.joint.classes + this.joint.columns[entry], entry));
  }

  change(smoothing) {
    this.smoothing = smoothing;
    this.solve();
    this.listeners.forEach((listener) => listener());
  }

  /** The heaviest source labels of a class: [label, weight], as many as the page has at the most. */
  top(column) {
    if (!this.joint) return this.run.weights.top[column];
    return strongest(this.joint, this.omega, column, 8).map(([row, weight]) => [this.joint.labels[row], weight]);
  }

  /** ω of a label of the page and a class, where J is there. */
  at(label, column) {
    if (this.omega.empty[column]) return this.omega.uniform;
    const entry = this.cells.get(this.places.get(label) * this.joint.classes + column);
    return entry === undefined ? 0 : this.omega.values[entry];
  }

  /** J of a label of the page and a class. */
  evidence(label, column) {
    const entry = this.cells.get(this.places.get(label) * this.joint.classes + column);
    return entry === undefined ? 0 : this.joint.values[entry];
  }
}

/** The heaviest source labels of a class as bars. */
function labelBars(weights, column) {
  const { run } = weights;
  const top = weights.top(column);
  if (!top.length) return el("p", { class: "soft" }, "There is no evidence for this class: all source labels count the same.");
  const shares = weights.joint || ["blm", "blm+"].includes(run.mapping);
  return bars(top.map(([place, weight]) => [label(run.labels[place]), weight, shares ? percent(weight) : amount(weight)]), shares ? Math.max(...top.map(([, weight]) => weight)) : 0);
}

/** The picture of ω, or of J where that is asked for. */
function omegaMatrix(weights) {
  const { run } = weights;
  const { rows, columns, scale } = run.matrix;
  const stored = numbers("u16", run.matrix.values);
  let shows = "omega";
  const value = (row, column) => {
    if (weights.joint && shows === "joint") return weights.evidence(rows[row], columns[column]);
    if (weights.joint) return weights.at(rows[row], columns[column]);
    return ((stored[row * columns.length + column] - 32768) / 32767) * scale;
  };
  const view = matrixView({
    rows: rows.map((place) => run.labels[place].split(", ")[0]),
    columns: columns.map((column) => run.classes[column]),
    rowText: "source labels", columnText: "classes", label: "The mapping",
    cells: () => {
      const all = rows.flatMap((_, row) => columns.map((__, column) => [row, column, value(row, column)]));
      const most = Math.max(...all.map(([, , amount]) => Math.abs(amount)), 1e-12);
      // the root shows small shares, too, which would all be white beside the largest; coefficients are never small
      const shade = run.weights.signed ? (share) => share : Math.sqrt;
      return all.filter(([, , amount]) => amount !== 0).map(([row, column, amount]) => [row, column, shade(Math.abs(amount) / most), amount < 0 ? "against" : "heat"]);
    },
    tell: (row, column) => {
      const found = value(row, column);
      const text = shows === "joint" ? `J = ${Number.isInteger(found) ? found : amount(found)}` : `ω = ${amount(found)}`;
      const more = weights.joint && shows === "omega" ? `, J = ${Number(weights.evidence(rows[row], columns[column]).toPrecision(4))}` : "";
      return [el("b", {}, label(run.labels[rows[row]])), " → ", el("b", {}, name(run.classes[columns[column]])), ` ${text}${more}`];
    },
  });
  weights.listeners.push(() => view.redraw());
  const chosen = (event) => {
    shows = event.target.dataset.shows;
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button === event.target));
    view.redraw();
  };
  const buttons = el("div", { class: "row controls", role: "group", "aria-label": "What the picture shows" },
    el("button", { type: "button", "data-shows": "omega", "aria-pressed": "true", onclick: chosen }, "ω, the weights"),
    el("button", { type: "button", "data-shows": "joint", "aria-pressed": "false", onclick: chosen }, "J, what was counted"));
  return el("div", {}, weights.joint ? buttons : null, view);
}

// λ on the slider: 0, then from 0.001 to 10,000 in even steps of its logarithm
const toSmoothing = (place) => (place <= 0 ? 0 : Number((10 ** (-3 + (place - 1) / 20)).toPrecision(3)));
const toPlace = (smoothing) => (smoothing <= 0 ? 0 : Math.max(1, Math.min(141, Math.round(1 + 20 * (Math.log10(smoothing) + 3)))));

/** λ as a slider and as a number. */
function smoothingControl(weights) {
  const own = weights.run.joint.smoothing;
  const told = el("p", { class: "small soft", id: "smoothing-told", "aria-live": "polite" });
  const slider = el("input", { type: "range", id: "smoothing", min: 0, max: 141, step: 1, value: toPlace(own), "aria-label": "Smoothing λ" });
  const field = el("input", { type: "number", id: "smoothing-value", min: 0, step: "any", value: own, "aria-label": "Smoothing λ as a number" });
  const tell = () => {
    told.textContent = weights.smoothing === own
      ? `λ = ${own}, as in the run.`
      : `λ = ${weights.smoothing}: these are not the weights of the run, which has λ = ${own}.`;
  };
  const set = (smoothing) => {
    if (!Number.isFinite(smoothing) || smoothing < 0) return;
    weights.change(smoothing);
    tell();
  };
  slider.addEventListener("input", () => { field.value = toSmoothing(Number(slider.value)); set(Number(field.value)); });
  field.addEventListener("input", () => { slider.value = toPlace(Number(field.value)); set(Number(field.value)); });
  const back = el("button", { type: "button", id: "smoothing-back", onclick: () => { field.value = own; slider.value = toPlace(own); set(own); } }, "As in the run");
  tell();
  return el("div", { class: "card controls" },
    el("h3", {}, "What if λ were another?"),
    el("p", { class: "small soft" }, "λ is added to how often each source label was seen. A larger one trusts labels less that were seen rarely. ω is computed anew here, from J."),
    slider, el("div", { class: "row" }, field, back), told, ratioNote(weights.run.joint));
}

/** What α would need: it decides what is counted, so the sum J cannot tell what another one would have counted. */
function ratioNote(joint) {
  if (!joint.top_k) return null;
  const ratio = joint.top_ratio === null || joint.top_ratio === undefined ? "" : `α = ${joint.top_ratio}, so `;
  return el("p", { class: "small soft" }, `${ratio}K = ${joint.top_k}: of each image the ${joint.top_k} most probable source labels were added up. J is their sum and no longer knows which of them came first, so another α cannot be computed from it; fit again with --top-ratio.`);
}

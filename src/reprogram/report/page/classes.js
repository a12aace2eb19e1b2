// The classes: a table with an interval for each, a picker, and what there is to say of the one that was picked.

/** The part of the page about classes; `pick` shows one of them. */
function classesPart(run, weights) {
  const test = run.test && !run.test.classes ? run.test : null; // an updated run was tested with other classes
  const mistakes = test ? confusedWith(run, test) : null;
  const detail = el("div", { class: "card", id: "class-detail", "aria-live": "polite" });
  const options = run.classes.map((text, place) => ({ text, place })).sort((one, other) => one.text.localeCompare(other.text, "en", { numeric: true }));
  const picker = el("select", { id: "class-picker", "aria-label": "Class", onchange: () => show(Number(picker.value)) },
    options.map(({ text, place }) => el("option", { value: place }, short(text, 60))));
  let picked = 0;

  const show = (place) => {
    picked = place;
    picker.value = String(place);
    detail.replaceChildren(...classDetail(run, weights, test, mistakes, place));
    for (const row of list.tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.place) === place);
  };
  const pick = (place) => {
    show(place);
    detail.scrollIntoView({ block: "nearest" });
  };

  const headings = [["class", null]];
  if (test) headings.push(["accuracy", "n"], ["95 % interval", "n", "hide-narrow"], ["test", "n"]);
  if (run.training) headings.push(["training", "n", test ? "hide-narrow" : null]);
  if (weights) headings.push(["strongest label", null, test ? "hide-narrow" : null]);
  const rows = run.classes.map((text, place) => {
    const cells = [[el("button", { type: "button", class: "link", onclick: () => pick(place) }, name(text)), text]];
    if (test) {
      const share = test.n[place] ? test.right[place] / test.n[place] : NaN;
      cells.push(
        [Number.isNaN(share) ? "–" : percent(share, 0), share],
        [test.n[place] ? intervalBar(share, test.low[place], test.high[place]) : "–", test.high[place] - test.low[place]],
        [String(test.n[place]), test.n[place]]);
    }
    if (run.training) cells.push([whole(run.training[place]), run.training[place]]);
    if (weights) {
      const top = supporting(weights.top(place));
      cells.push(top ? label(run.labels[top[0]]) : "–");
    }
    return cells;
  });
  const list = table(headings, rows, { rowsMade: (row, place) => { row.dataset.place = place; } });
  list.id = "class-table";
  if (weights) weights.listeners.push(() => {
    for (const row of list.tBodies[0].rows) {
      const top = supporting(weights.top(Number(row.dataset.place)));
      row.cells[row.cells.length - 1].replaceChildren(top ? label(run.labels[top[0]]) : "–");
    }
    show(picked);
  });
  show(test ? worst(test) : 0);
  const part = el("div", { class: "two wider" },
    el("div", {}, searchBox(list, "classes"), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of classes" }, list)),
    el("div", {}, el("div", { class: "row controls" }, el("label", { for: "class-picker" }, "Class"), el("div", { class: "grow" }, picker)), detail));
  return { part, pick, tested: Boolean(test) };
}

/** The label that speaks most for a class: one of a large weight against it does not stand for it. */
function supporting(top) {
  return top.find(([, weight]) => weight > 0) || top[0];
}

/** The class of the lowest accuracy that has been tested: where a reader wants to look first. */
function worst(test) {
  let found = 0;
  test.n.forEach((n, place) => {
    const share = (at) => (test.n[at] ? test.right[at] / test.n[at] : 2);
    if (share(place) < share(found)) found = place;
  });
  return found;
}

/** For each class what it was taken for, and what was taken for it: [class, count], the most frequent first. */
function confusedWith(run, test) {
  const found = run.classes.map(() => ({ takenFor: [], taken: [] }));
  const entries = numbers("varint", test.confusion);
  for (let place = 0; place < entries.length; place += 3) {
    const [row, column, count] = entries.subarray(place, place + 3);
    if (row === column) continue;
    found[row].takenFor.push([column, count]);
    found[column].taken.push([row, count]);
  }
  for (const one of found) for (const side of Object.values(one)) side.sort((a, b) => b[1] - a[1]);
  return found;
}

function classDetail(run, weights, test, mistakes, place) {
  const nodes = [el("h3", {}, name(run.classes[place]))];
  if (test && test.n[place]) {
    nodes.push(el("p", {}, `${test.right[place]} of ${plural(test.n[place], "test image")} right (95 % interval ${percent(test.low[place], 0)} to ${percent(test.high[place], 0)}).`));
    const others = (side) => side.slice(0, 4).flatMap(([other, count], at) => [at ? ", " : "", name(run.classes[other]), ` (${count})`]);
    const { takenFor, taken } = mistakes[place];
    if (takenFor.length) nodes.push(el("p", { class: "small inline" }, "Taken for ", others(takenFor), "."));
    if (taken.length) nodes.push(el("p", { class: "small inline" }, "Wrongly said of ", others(taken), "."));
    if (!takenFor.length && !taken.length) nodes.push(el("p", { class: "small" }, "It was never confused with another class."));
  }
  const pictures = run.pictures.classes[place] || [];
  if (pictures.length) nodes.push(el("div", { class: "thumbs" }, pictures.map((source) => el("img", { src: source, alt: `A training image of ${run.classes[place]}`, width: 64, height: 64 }))));
  if (weights) nodes.push(el("h3", { class: "spaced" }, run.weights.signed ? "Source labels of the largest weight, for it and against it" : "Source labels that stand for it"), labelBars(weights, place));
  return nodes;
}

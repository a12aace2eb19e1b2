// The parts of the page about one run, each made of its data, or left out where there is none.

/** A part with a heading and a sentence on how to read it. */
function part(id, heading, lead, ...content) {
  return el("section", { class: "part", id, "data-title": heading }, el("h2", {}, heading), lead ? el("p", { class: "lead" }, lead) : null, content);
}

/** Everything below the summary of a run. */
function runParts(run) {
  const weights = run.weights ? new Weights(run) : null; // a reference has no mapping
  const classes = classesPart(run, weights);
  const found = [
    part("classes", "Classes", `${classes.tested ? "Every class with its accuracy and how far that can be believed" : "Every class, and what it rests on"}. Pick one to see what stands for it.`, classes.part),
    confusionPart(run),
    surePart(run),
    weights ? mappingPart(run, weights) : null,
    programPart(run),
    trainingPart(run),
    answersPart(run),
    madePart(run),
  ];
  return { parts: found.filter(Boolean), weights };
}

function confusionPart(run) {
  if (!run.test) return null;
  const { test } = run;
  const classes = test.classes || run.classes;
  const entries = numbers("varint", test.confusion);
  const place = new Map(test.order.map((number, at) => [number, at]));
  const count = new Map();
  const pairs = [];
  for (let at = 0; at < entries.length; at += 3) {
    const [row, column, n] = entries.subarray(at, at + 3);
    count.set(row * classes.length + column, n);
    if (row !== column) pairs.push([row, column, n]);
  }
  pairs.sort((one, other) => other[2] - one[2] || other[2] / test.n[other[0]] - one[2] / test.n[one[0]]);
  const names = test.order.map((number) => classes[number]);
  const view = matrixView({
    rows: names, columns: names, rowText: "true class", columnText: "what was said", label: "Confusion of classes",
    cells: () => Array.from(count, ([key, n]) => {
      const row = Math.floor(key / classes.length);
      const column = key % classes.length;
      return [place.get(row), place.get(column), Math.sqrt(n / test.n[row]), row === column ? "heat" : "wrong"];
    }),
    tell: (row, column) => {
      const [from, to] = [test.order[row], test.order[column]];
      const n = count.get(from * classes.length + to) || 0;
      const share = test.n[from] ? ` (${percent(n / test.n[from], 0)})` : "";
      return from === to
        ? [el("b", {}, name(classes[from])), ` was recognised in ${n} of ${plural(test.n[from], "image")}${share}.`]
        : [el("b", {}, name(classes[from])), " was taken for ", el("b", {}, name(classes[to])), ` in ${n} of ${plural(test.n[from], "image")}${share}.`];
    },
  });
  const listed = pairs.slice(0, 200).map(([row, column, n]) => [name(classes[row]), name(classes[column]), [String(n), n], [percent(n / test.n[row], 0), n / test.n[row]]]);
  const list = listed.length ? table([["true class", null], ["was taken for", null], ["times", "n"], ["share", "n", "hide-narrow"]], listed) : null;
  return part("confusion", "Confusion", "Blue on the diagonal is right, orange is wrong. Classes that are taken for one another stand together.",
    el("div", { class: "two" },
      el("div", { class: "card" }, view),
      list ? el("div", {}, searchBox(list, "mistakes"), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of mistakes" }, list)) : el("p", {}, "There is no mistake on the test images.")));
}

function surePart(run) {
  if (!run.test) return null;
  const { test } = run;
  const confidence = { n: numbers("varint", test.confidence.n), right: numbers("varint", test.confidence.right) };
  const out = Object.fromEntries(["accuracy", "coverage", "answers"].map((id) => [id, el("output", { id: `abstain-${id}`, for: "abstain" })]));
  const range = el("p", { class: "small soft", id: "abstain-told", "aria-live": "polite" });
  const slider = el("input", { type: "range", id: "abstain", min: 0, max: 1000, step: 1, value: 0, "aria-label": "Least confidence of an answer, in thousandths" });
  const chart = coverageChart(confidence, () => Number(slider.value));
  const update = () => {
    const least = Number(slider.value);
    const { kept, right, n } = abstention(confidence, least);
    out.accuracy.textContent = kept ? percent(right / kept) : "–";
    out.coverage.textContent = percent(kept / n);
    out.answers.textContent = whole(kept);
    const [low, high] = wilson(right * test.independent, kept * test.independent); // images of a group tell less than others
    slider.setAttribute("aria-valuetext", `${(least / 10).toFixed(1)} percent`);
    range.textContent = (least ? `Answers below ${(least / 10).toFixed(1)} % confidence are withheld. ` : "Every image gets an answer. ") +
      (kept ? `The accuracy of the rest lies between ${percent(low)} and ${percent(high)}.` : "Nothing is left.");
    chart.redraw();
  };
  slider.addEventListener("input", update);
  update();
  return part("sure", "How sure", "What confidence is worth: whether it can be believed, and what is gained if unsure answers are withheld.",
    el("div", { class: "two" },
      el("div", { class: "card" }, el("h3", {}, "Withhold unsure answers"),
        el("div", { class: "figures" },
          el("div", {}, out.accuracy, el("span", { class: "label" }, "accuracy")),
          el("div", {}, out.coverage, el("span", { class: "label" }, "coverage")),
          el("div", {}, out.answers, el("span", { class: "label" }, `of ${whole(run.tested)} answers`))),
        slider, range, chart),
      el("div", { class: "card" }, el("h3", {}, "Does confidence hold?"), reliabilityChart(test.reliability),
        el("p", { class: "small soft" }, `On the dashed line, answers that say 80 % are right in 80 % of the cases; below it they promise too much. Larger dots are more answers; bars are 95 % intervals. Mean distance: ${test.error.toFixed(3)}.`))));
}

function mappingPart(run, weights) {
  const lead = weights.joint
    ? "How much each source label counts for each class: a column adds up to 1. Source labels that matter, in an order that shows what belongs together."
    : run.weights.signed
      ? "Weights of source labels for (blue) and against (orange) each class. They are coefficients: compare within a class. Shown are the source labels that matter most."
      : "How much each source label counts for each class. Shown are the source labels that matter most.";
  const control = weights.joint ? smoothingControl(weights)
    : run.joint ? el("p", { class: "note" }, `J has ${whole(run.joint.entries)} entries, which are too many for this page, so λ cannot be changed here.`) : null;
  const matrix = el("div", { class: "card" }, omegaMatrix(weights));
  return part("mapping", "Mapping", lead, control ? el("div", { class: "side" }, matrix, control) : matrix);
}

function programPart(run) {
  const { program, canvases } = run.pictures;
  if (!program && !canvases.length) return null;
  const nodes = [];
  if (program) {
    nodes.push(el("figure", {}, el("img", { src: program.image, alt: "The program on a grey image", width: 160 }),
      el("figcaption", {}, program.factor > 1 ? `The program on grey, made ${program.factor} times as strong to be seen.` : "The program around, or on, a grey image.")));
  }
  canvases.forEach((one) => nodes.push(el("div", { class: "pair" },
    el("figure", {}, el("img", { src: one.before, alt: "An image before the program", width: 160 }), el("figcaption", {}, "before: ", name(run.classes[one.label] || ""))),
    el("figure", {}, el("img", { src: one.after, alt: "The same image with the program", width: 160 }), el("figcaption", {}, "what the model sees")))));
  const frames = program && program.frames.length > 1
    ? [el("h3", { class: "spaced" }, "How it grew"), el("div", { class: "pictures strip" }, program.frames.map(([epoch, source]) =>
      el("figure", {}, el("img", { src: source, alt: `The program after epoch ${epoch}`, width: 84 }), el("figcaption", {}, `epoch ${epoch}`))))]
    : [];
  return part("program", "Program", "What was trained: the pattern that is put around, or onto, every image before the frozen model sees it.",
    el("div", { class: "card" }, el("div", { class: "pictures" }, nodes), frames));
}

function trainingPart(run) {
  const { epochs } = run;
  if (!epochs || epochs.epoch.length < 2) return null;
  const own = [epochs.epoch];
  const lead = run.selected === null ? "" : `The dashed line marks the epoch that was ${run.validated ? "selected on validation images" : "kept: the last one, as there are no validation images"}. `;
  const accuracy = lineChart({ title: "accuracy", epochs: own, share: true, mark: run.selected, series: [
    { text: "test", values: epochs.test, tone: 0 }, { text: "validation", values: epochs.val, tone: 1, dash: 1 }, { text: "training", values: epochs.train, tone: 2, dash: 2 }] });
  const loss = lineChart({ title: "loss", epochs: own, series: [{ text: "training loss", values: epochs.loss, tone: 0 }], height: 170 });
  const change = lineChart({ title: "change of ω", epochs: own, series: [{ text: "how far the columns of ω moved (0: not at all, 1: wholly)", values: epochs.change, tone: 3 }], height: 170 });
  return part("training", "Training", `${lead}${epochs.epoch[0] === 0 ? "Epoch 0 is the images unchanged." : ""}`,
    el("div", { class: "card" }, accuracy), el("div", { class: "two spaced" }, loss ? el("div", { class: "card" }, loss) : null, change ? el("div", { class: "card" }, change) : null));
}

function answersPart(run) {
  const { right, wrong, notes } = run.pictures;
  const remarks = notes.map((note) => el("p", { class: "note" }, note));
  if (!right.length && !wrong.length) return remarks.length && run.kind !== "mapping" ? part("answers", "Single answers", null, remarks) : null;
  const classes = run.test.classes || run.classes;
  const gallery = el("div", { class: "gallery" });
  const kinds = { wrong, right };
  const few = 9;
  const more = el("button", { type: "button", class: "controls spaced" });
  const show = (kind, count = few) => {
    const all = kinds[kind];
    gallery.replaceChildren(...all.slice(0, count).map((one) => answerCard(run, classes, one)));
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
    more.hidden = all.length <= count;
    more.textContent = `Show all ${all.length}`;
    more.onclick = () => {
      show(kind, all.length);
      gallery.children[few].focus();
    };
  };
  const buttons = el("div", { class: "row controls", role: "group", "aria-label": "Which answers" },
    el("button", { type: "button", "data-kind": "wrong", onclick: () => show("wrong") }, `Wrong, the surest first (${wrong.length})`),
    el("button", { type: "button", "data-kind": "right", onclick: () => show("right") }, `Right (${right.length})`));
  show(wrong.length ? "wrong" : "right");
  const lead = run.weights ? "What the model saw in single test images: source labels by how much they added to the answer (weight × logit)." : "What the model said of single test images.";
  return part("answers", "Single answers", lead, buttons, gallery, more, remarks);
}

function answerCard(run, classes, one) {
  const right = one.label === one.predicted;
  const most = one.evidence.length ? Math.max(...one.evidence.map(([, value]) => Math.abs(value))) : 1;
  const words = el("div", {},
    el("h3", {}, el("span", { class: `verdict ${right ? "right" : "wrong"}` }, right ? "right" : "wrong"), " ", el("bdi", {}, short(classes[one.predicted], 60)), el("span", { class: "small soft" }, `, ${percent(one.confidence, 0)} sure`)),
    right ? null : el("p", { class: "small inline" }, "The label says ", name(classes[one.label]), "."),
    one.evidence.length ? bars(one.evidence.map(([place, value]) => [label(run.labels[place]), value, amount(value)]), most) : null,
    one.top.length ? el("p", { class: "small soft inline" }, "The model itself says ", one.top.slice(0, 3).flatMap(([place, share], at) => [at ? ", " : "", label(run.labels[place]), share < 0.01 ? " (below 1\u00a0%)" : ` ${percent(share, 0)}`]), ".") : null,
    el("p", { class: "small soft" }, name(one.name)));
  return one.image
    ? el("div", { class: "card answer", tabindex: -1 }, el("img", { src: one.image, alt: `Test image ${one.name}`, width: 72, height: 72 }), words)
    : el("div", { class: "card answer bare", tabindex: -1 }, words);
}

function madePart(run) {
  if (!run.facts.length) return null;
  const list = table([["setting", null], ["value", null]], run.facts.map(([text, value]) => [text, el("bdi", {}, value)]));
  return part("made", "How it was made", null,
    el("details", {}, el("summary", {}, `All ${run.facts.length} settings and versions`), searchBox(list, "settings"), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of settings" }, list)));
}

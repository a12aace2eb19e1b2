// The page as a whole: light or dark, the table of several runs, which run is shown, and the list of parts.

const report = JSON.parse(document.getElementById("data").textContent);
const place = document.getElementById("run");
const summaries = Array.from(document.querySelectorAll("article.summary"));
let weightsShown = null;

function startTheme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const tell = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours");
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    tell();
  });
  system.addEventListener("change", tell);
  button.hidden = false;
  tell();
}

/** Show one run: its summary, which Python wrote, and its parts, which are made now. */
function showRun(number) {
  const run = report.runs[number];
  summaries.forEach((summary) => { summary.hidden = Number(summary.dataset.run) !== number; });
  const { parts, weights } = runParts(run);
  weightsShown = weights;
  place.replaceChildren(...parts);
  const several = report.runs.length > 1 ? [["runs", "Runs"], ["chosen", "Summary"]] : [["content", "Summary"]];
  const links = [...several, ...parts.map((one) => [one.id, one.dataset.title])];
  document.getElementById("sections").replaceChildren(...links.map(([id, text]) => el("a", { href: `#${id}` }, text)));
  const picker = document.getElementById("run-picker");
  if (picker) picker.value = String(number);
  for (const row of document.querySelectorAll("table.runs tbody tr")) row.classList.toggle("chosen", Number(row.dataset.run) === number);
}

/** The run that is shown first: the one that was right most often. */
function best() {
  const rows = Array.from(document.querySelectorAll("table.runs tbody tr"));
  const column = rows.length ? Array.from(document.querySelectorAll("table.runs th"), (head) => head.textContent).indexOf("accuracy") : 0;
  const share = (number) => parseFloat(rows.find((row) => Number(row.dataset.run) === number).cells[column].textContent) || 0;
  return rows.length ? report.runs.map((_, number) => number).reduce((one, other) => (share(other) > share(one) ? other : one)) : 0;
}

/** Bring the table of several runs to life: sorting, choosing a run, and their epochs in one chart. */
function startRuns() {
  const list = document.querySelector("table.runs");
  if (!list) return;
  const picker = el("select", { id: "run-picker", onchange: () => showRun(Number(picker.value)) }, report.runs.map((run, number) => el("option", { value: number }, short(run.name, 60))));
  const heads = Array.from(list.tHead.rows[0].cells, (cell) => cell.textContent);
  const interval = heads.indexOf("95 % interval");
  for (const row of list.tBodies[0].rows) {
    const number = Number(row.dataset.run);
    const cell = row.cells[0];
    cell.dataset.value = cell.textContent;
    cell.replaceChildren(el("button", { type: "button", class: "link", onclick: () => showRun(number) }, name(report.runs[number].name)));
    if (row.dataset.low) {
      const shown = row.cells[interval];
      const [low, high] = [Number(row.dataset.low), Number(row.dataset.high)];
      shown.title = shown.textContent;
      shown.replaceChildren(intervalBar(parseFloat(row.cells[interval - 1].textContent) / 100, low, high));
    }
  }
  sortable(list);
  const trained = report.runs.filter((run) => run.epochs && run.epochs.epoch.length > 1);
  const overlay = document.getElementById("overlay");
  if (trained.length) {
    const chart = lineChart({ title: "test accuracy", share: true, epochs: trained.map((run) => run.epochs.epoch), height: 280,
      series: trained.map((run, number) => ({ text: short(run.name, 30), values: run.epochs.test, tone: number, dash: Math.floor(number / 6) % 3, run: number })) });
    if (chart) overlay.append(el("div", { class: "card spaced" }, el("h3", {}, "Test accuracy per epoch"), chart));
  }
  overlay.append(el("section", { class: "part", id: "chosen" }, el("div", { class: "row controls" }, el("label", { for: "run-picker" }, "Look closer at"), el("div", { class: "grow" }, picker))));
}

startTheme();
startRuns();
showRun(best());

// what the tests in a browser compare with Python
Object.defineProperty(window, "reprogramReport", { value: Object.freeze({
  omega: (label, column) => weightsShown.at(weightsShown.run.labels.indexOf(label), column),
  abstention, wilson, report,
}) });

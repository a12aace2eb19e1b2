"use strict";
// Everything that comes from the service or from a file is set as text, never as markup.
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const AT_ONCE = 4; // requests under way
let tasks = [];
let token = sessionStorage.getItem("token") || "";
let stream = null;
let waiting = 0;

function make(name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function drawn(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

async function ask(path, options = {}) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The service does not answer; check that it is running.");
  }
  let content = {};
  try { content = await response.json(); } catch { /* an error without words */ }
  if (response.status === 401) { at("access").hidden = false; at("token").focus(); }
  if (!response.ok) throw new Error(sentence(content.error || `The service answered with ${response.status}.`));
  return content;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
const percent = (share) => share >= 0.9995 ? "> 99.9 %" : share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
const brief = (text, most) => text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;

async function loadTasks() {
  try {
    tasks = (await ask("/v1/tasks")).tasks;
    at("access").hidden = true;
    at("status").textContent = tasks.length ? "" : "This service has no task yet.";
  } catch (error) {
    at("status").textContent = error.message;
  }
  at("filter").hidden = tasks.length < 13;
  listTasks();
}

function listTasks() {
  const wanted = at("filter").value.trim().toLowerCase();
  const found = tasks.filter((task) => task.name.toLowerCase().includes(wanted));
  for (const [id, first] of [["task", null], ["other", "nothing"]]) {
    const select = at(id), before = select.value;
    const options = found.map((task) => { const one = make("option", task.name); one.value = task.name; return one; });
    if (first) { const none = make("option", first); none.value = ""; options.unshift(none); }
    select.replaceChildren(...options);
    if ([...select.options].some((option) => option.value === before)) select.value = before;
  }
  tellTask();
}

function tellTask() {
  const task = tasks.find((one) => one.name === at("task").value);
  at("about").textContent = task
    ? `${task.classes} classes by mapping ${task.mapping}, ${task.program === "none" ? "without a program" : `program ${task.program}`}, on ${task.model.replace(/^\w+:/, "")}`
    : "";
}

function chart(evidence) {
  // bars of weight × logit around a line at 0: to the right for the label, to the left against it
  const width = 320, row = 34, left = 0, right = 320;
  const most = Math.max(...evidence.map((one) => Math.abs(one.contribution)), 1e-9);
  const negative = evidence.some((one) => one.contribution < 0), positive = evidence.some((one) => one.contribution >= 0);
  const zero = negative ? (positive ? (left + right) / 2 : right - 54) : left + 0.5;
  const room = Math.min(negative ? zero - left : Infinity, positive ? right - zero : Infinity) - 54;
  const height = evidence.length * row + 4;
  const told = evidence.map((one) => `${one.source} ${one.contribution.toFixed(2)}`).join("; ");
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Evidence: ${told}` });
  evidence.forEach((one, index) => {
    const y = index * row + 4, length = Math.max(2, room * Math.abs(one.contribution) / most), speaks = one.contribution >= 0;
    const name = drawn("text", { x: left, y: y + 10 }, brief(one.source, 46));
    name.append(drawn("title", {}, `${one.source}: weight ${one.weight.toFixed(3)}, logit ${one.logit.toFixed(2)}`));
    svg.append(name, drawn("line", { x1: zero, x2: zero, y1: y + 13, y2: y + 26, class: "axis" }), drawn("rect", {
      x: speaks ? zero : zero - length, y: y + 15, width: length, height: 9, rx: 2, class: speaks ? "for" : "against",
    }), drawn("text", {
      x: speaks ? zero + length + 5 : zero - length - 5, y: y + 23, "text-anchor": speaks ? "start" : "end", class: "value",
    }, `${speaks ? "+" : "−"}${Math.abs(one.contribution).toFixed(2)}`));
  });
  return svg;
}

function answer(place, task, said, coverage) {
  place.replaceChildren(make("p", task, "of"));
  if (said.error) { place.append(make("p", sentence(said.error), "wrong")); return; }
  place.append(make("p", said.label, "label"));
  const list = make("ol", undefined, "shares");
  for (const one of said.top || [said]) {
    const item = make("li"), track = make("div", undefined, "track"), fill = make("div", undefined, "fill");
    fill.style.width = `${Math.max(0.5, 100 * one.probability)}%`;
    track.append(fill);
    item.append(make("span", one.label), make("span", percent(one.probability), "number"), track);
    list.append(item);
  }
  place.append(list);
  if (said.set) {
    const found = said.set.length ? said.set.join(", ") : "no class fits";
    place.append(make("p", `Prediction set at ${Math.round(100 * coverage)} %: ${found}`, "set"));
  }
  if (said.evidence.length) place.append(make("p", "Decided by the source labels", "why"), chart(said.evidence));
}

const queue = [];
let running = 0;
function later(work) {
  queue.push(work);
  next();
}
async function next() {
  if (running >= AT_ONCE || !queue.length) return;
  running += 1;
  try { await queue.shift()(); } finally { running -= 1; next(); }
}

function classify(file, name) {
  const chosen = [at("task").value, at("other").value].filter((one, index, all) => one && all.indexOf(one) === index);
  if (!chosen.length) { at("status").textContent = "Choose a task first."; return; }
  const card = make("article", undefined, "card"), figure = make("figure", undefined, "thumb");
  const picture = make("img"), address = URL.createObjectURL(file);
  picture.alt = "";
  picture.onload = () => URL.revokeObjectURL(address);
  picture.onerror = () => { URL.revokeObjectURL(address); picture.replaceWith(make("div", "no preview", "none")); };
  picture.src = address;
  figure.append(picture, make("figcaption", name));
  const answers = make("div", undefined, "answers");
  card.append(figure, answers);
  at("results").prepend(card);
  for (const task of chosen) {
    const place = make("div", undefined, "answer");
    place.append(make("p", task, "of"), make("p", "asking …", "waiting"));
    answers.append(place);
    const options = new URLSearchParams({ evidence: at("evidence").value || "0", top: at("top").value || "1" });
    const coverage = at("coverage").value;
    if (coverage) options.set("coverage", coverage);
    count(1);
    later(async () => {
      try {
        const form = new FormData();
        form.append("image", file, name);
        const path = `/v1/tasks/${encodeURIComponent(task)}/predict?${options}`;
        answer(place, task, (await ask(path, { method: "POST", body: form })).predictions[0], coverage);
      } catch (error) {
        answer(place, task, { error: error.message });
      }
      count(-1);
    });
  }
}

function count(change) {
  waiting += change;
  at("status").textContent = waiting ? `${waiting} ${waiting === 1 ? "answer" : "answers"} to come` : "";
}

function take(files) {
  for (const file of files) classify(file, file.name || "image");
}

async function openCamera() {
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
  } catch {
    at("status").textContent = "The camera cannot be used; allow it for this page, which needs https or this machine itself.";
    return;
  }
  at("video").srcObject = stream;
  at("stage").hidden = false;
  await at("video").play();
  at("shot").focus();
}

function closeCamera() {
  if (stream) stream.getTracks().forEach((track) => track.stop());
  stream = null;
  at("video").srcObject = null;
  at("stage").hidden = true;
}

function takePicture() {
  const video = at("video"), canvas = document.createElement("canvas");
  if (!video.videoWidth) return;
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  canvas.toBlob((blob) => blob && classify(blob, "camera.jpg"), "image/jpeg", 0.92);
}

at("task").addEventListener("change", tellTask);
at("filter").addEventListener("input", listTasks);
at("files").addEventListener("change", () => { take(at("files").files); at("files").value = ""; });
at("camera").addEventListener("click", openCamera);
at("shot").addEventListener("click", takePicture);
at("stop").addEventListener("click", closeCamera);
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("token", token);
  loadTasks();
});
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => { event.preventDefault(); at("drop").classList.add("over"); });
}
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) at("drop").classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => take(event.clipboardData.files));
if (!navigator.mediaDevices) at("camera").hidden = true;
loadTasks();

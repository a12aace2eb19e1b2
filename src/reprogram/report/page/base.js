// Small tools: elements, numbers for readers, compact arrays, and drawings that follow their width.
// Whatever comes from data becomes text (textContent) or an attribute; nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes, listeners ("onclick") and children (elements or texts). */
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** A name that others wrote: its letters run in their own direction and leave the text around them alone. */
function name(text) {
  return el("bdi", { class: "clamp", title: text.length > 40 ? text : null }, text);
}

/** A source label: of the many synonyms that some models have ("cougar, puma, catamount ...") the first. */
function label(text) {
  const [first] = text.split(", ");
  return text.length > 20 && first !== text ? el("bdi", { class: "clamp", title: text }, first) : name(text);
}

/** A name cut to so many characters, for places of a fixed width. */
function short(text, length) {
  const letters = Array.from(text);
  return letters.length > length ? letters.slice(0, length - 1).join("") + "…" : text;
}

const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`);
const amount = (value) => {
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 0.001 ? value.toPrecision(3) : value === 0 ? "0" : value.toExponential(1);
  return text.replace("-", "−");
};
const whole = (value) => Math.round(value).toLocaleString("en");
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

/** The numbers of a base64 text: "u8", "u16" or "f32" in little-endian order, or "varint", seven bits to a byte. */
function numbers(kind, text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  if (kind === "varint") return varints(bytes);
  const view = new DataView(bytes.buffer);
  const [size, read] = {
    u8: [1, (at) => view.getUint8(at)],
    u16: [2, (at) => view.getUint16(at, true)],
    f32: [4, (at) => view.getFloat32(at, true)],
  }[kind];
  const found = new (kind === "f32" ? Float64Array : Uint32Array)(bytes.length / size);
  for (let place = 0; place < found.length; place++) found[place] = read(place * size);
  return found;
}

function varints(bytes) {
  const found = [];
  let value = 0;
  let place = 1;
  for (const byte of bytes) {
    value += (byte & 127) * place;
    place *= 128;
    if (byte < 128) {
      found.push(value);
      value = 0;
      place = 1;
    }
  }
  return Float64Array.from(found);
}

/** A box whose drawing is made again when its width changes; `draw(width)` gives the node. */
function drawing(draw) {
  const box = el("div");
  let last = 0;
  const again = (force) => {
    const width = Math.floor(box.clientWidth);
    if (!width || (width === last && !force)) return;
    last = width;
    box.replaceChildren(draw(width));
  };
  new ResizeObserver(() => again(false)).observe(box);
  box.redraw = () => again(true);
  return box;
}

/** Round numbers from 0 (or `low`) to `high`, about `count` of them, for an axis. */
function ticks(low, high, count) {
  const span = high - low || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-6; place++) found.push(place * step);
  return found;
}

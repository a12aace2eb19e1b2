// Classify images in JavaScript with a backbone and an adapter of `reprogram export --format onnx-adapter`.
//
//   npm install --ignore-scripts onnxruntime-web
//   node classify.mjs TASK_FOLDER images.bin answers.bin
//
// images.bin holds uint8 (N, S, S, 3); answers.bin gets float32 (N, k_T). onnxruntime-web (1.30) knows no adapters, and
// refuses to be fed what a graph has a default for. So the adapter is read here, the defaults of its three arrays are taken
// out of the backbone's bytes, and the arrays are fed as inputs.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as ort from "onnxruntime-web";

/** The arrays of an .onnx_adapter file: a FlatBuffer with a list of (name, shape, type, bytes). */
export function readAdapter(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = (place) => place + view.getUint32(place, true);
  const field = (table, number) => {
    const directory = table - view.getInt32(table, true);
    const inside = 6 + 2 * number <= view.getUint16(directory, true);
    const offset = inside ? view.getUint16(directory + 4 + 2 * number, true) : 0;
    return offset ? table + offset : 0;
  };
  if (String.fromCharCode(...bytes.subarray(4, 8)) !== "TORT") throw new Error("this is no ONNX Runtime adapter");
  const list = at(field(at(0), 3));
  const arrays = {};
  for (let index = 0; index < view.getUint32(list, true); index++) {
    const table = at(list + 4 + 4 * index);
    const [name, shape, , raw] = [0, 1, 2, 3].map((number) => (field(table, number) ? at(field(table, number)) : 0));
    if (view.getInt32(field(table, 2), true) !== 1) throw new Error("float32 is expected");
    const sides = Array.from({ length: view.getUint32(shape, true) }, (_, i) => Number(view.getBigInt64(shape + 4 + 8 * i, true)));
    const content = bytes.slice(raw + 4, raw + 4 + view.getUint32(raw, true)); // a copy, so that it is aligned
    const key = new TextDecoder().decode(bytes.subarray(name + 4, name + 4 + view.getUint32(name, true)));
    arrays[key] = new ort.Tensor("float32", new Float32Array(content.buffer), sides);
  }
  return arrays;
}

/** An ONNX file without the defaults of some inputs: initialisers (field 5) of the graph (field 7), by name (field 8). */
export function withoutDefaults(model, names) {
  const number = (bytes, place) => {
    let [value, scale] = [0, 1];
    for (; ; scale *= 128) {
      value += (bytes[place] & 127) * scale;
      if (bytes[place++] < 128) return [value, place];
    }
  };
  const written = (value) => {
    const found = [];
    for (; value > 127; value = Math.floor(value / 128)) found.push((value % 128) | 128);
    return Uint8Array.from([...found, value]);
  };
  const fields = function* (bytes) {
    for (let place = 0; place < bytes.length; ) {
      const start = place;
      const [tag, after] = number(bytes, place);
      let content = null;
      if (tag % 8 === 2) {
        const [length, begin] = number(bytes, after);
        content = bytes.subarray(begin, begin + length);
        place = begin + length;
      } else place = tag % 8 === 0 ? number(bytes, after)[1] : after + (tag % 8 === 1 ? 8 : 4);
      yield { field: Math.floor(tag / 8), whole: bytes.subarray(start, place), content };
    }
  };
  const nameOf = (tensor) => [...fields(tensor)].filter((part) => part.field === 8).map((part) => new TextDecoder().decode(part.content))[0];
  const parts = [];
  for (const part of fields(model)) {
    if (part.field !== 7) {
      parts.push(part.whole);
      continue;
    }
    const kept = [...fields(part.content)].filter((inner) => inner.field !== 5 || !names.includes(nameOf(inner.content)));
    const length = kept.reduce((sum, inner) => sum + inner.whole.length, 0);
    parts.push(Uint8Array.of(7 * 8 + 2), written(length), ...kept.map((inner) => inner.whole));
  }
  return new Uint8Array(Buffer.concat(parts));
}

const [folder, imagesFile, answersFile] = process.argv.slice(2);
const facts = JSON.parse(readFileSync(join(folder, "export.json"), "utf8"));
const backbone = readFileSync(join(folder, facts.backbone.path));
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const graph = withoutDefaults(new Uint8Array(backbone), ["pattern", "weight", "bias"]);
const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"] });
const pattern = new ort.Tensor("float32", new Float32Array(3), [3, 1, 1]); // of a task without a program
const arrays = readAdapter(new Uint8Array(readFileSync(join(folder, "task.onnx_adapter"))));
const pixels = new Uint8Array(readFileSync(imagesFile));
const side = facts.input.size;
const count = pixels.length / (side * side * 3);
const images = new ort.Tensor("uint8", pixels, [count, side, side, 3]);
const { probabilities } = await session.run({ images, pattern, ...arrays }, ["probabilities"]);
writeFileSync(answersFile, new Uint8Array(probabilities.data.buffer, probabilities.data.byteOffset, probabilities.data.byteLength));
console.log(`${count} images, ${probabilities.dims[1]} classes, inputs ${session.inputNames.join(" ")}`);

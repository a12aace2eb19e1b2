// BLM and BLM+ as in reprogram.mappings.bayesian: ω ∝ J / (row sums of J + λ), every column scaled to sum 1.
// J comes as a sparse matrix: for each entry its source label (row), its class (column) and its amount.

/** What a payload holds of J, unpacked: rows of the entries as places in `labels`, which are those of the page, their columns and amounts. */
function unpackedJoint(joint) {
  const steps = numbers("varint", joint.steps);
  const values = numbers(joint.type, joint.values);
  const rows = new Uint32Array(steps.length);
  const columns = new Uint32Array(steps.length);
  let place = -1;
  for (let entry = 0; entry < steps.length; entry++) {
    place += steps[entry]; // steps from entry to entry, row by row
    rows[entry] = Math.floor(place / joint.classes);
    columns[entry] = place % joint.classes;
  }
  return { rows, columns, values, labels: joint.labels, sources: joint.sources, classes: joint.classes };
}

/**
 * ω as a function of λ: { values (by entry), empty (by class), uniform }. Where J has no entry ω is 0, but for a class
 * without any evidence, whose column is uniform over all `sources` labels.
 */
function bayes(joint, smoothing) {
  const rowSums = new Float64Array(joint.labels.length);
  joint.values.forEach((value, entry) => { rowSums[joint.rows[entry]] += value; });
  const mass = new Float64Array(joint.classes);
  const values = new Float64Array(joint.values.length);
  joint.values.forEach((value, entry) => {
    const row = rowSums[joint.rows[entry]] + smoothing;
    values[entry] = row > 0 ? value / row : 0;
    mass[joint.columns[entry]] += values[entry];
  });
  joint.values.forEach((_, entry) => {
    const column = joint.columns[entry];
    values[entry] = mass[column] > 0 ? values[entry] / mass[column] : 0;
  });
  return { values, empty: Array.from(mass, (sum) => sum <= 0), uniform: 1 / joint.sources };
}

/** The strongest source labels of one class: [place in labels, weight] pairs, the heaviest first. */
function strongest(joint, omega, column, count) {
  const found = [];
  joint.columns.forEach((own, entry) => {
    if (own === column && omega.values[entry] > 0) found.push([joint.rows[entry], omega.values[entry]]);
  });
  return found.sort((one, other) => other[1] - one[1] || one[0] - other[0]).slice(0, count);
}

/** Who answers when only answers of at least this confidence (in thousandths) count: { kept, right, n }. */
function abstention(confidence, least) {
  let kept = 0;
  let right = 0;
  let n = 0;
  confidence.n.forEach((count, bin) => {
    n += count;
    if (bin >= least) {
      kept += count;
      right += confidence.right[bin];
    }
  });
  return { kept, right, n };
}

/** The 95 % Wilson interval of an accuracy, as reprogram.scores has it. */
function wilson(correct, n) {
  if (n === 0) return [0, 1];
  const z = 1.959963984540054;
  const share = correct / n;
  const centre = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z / (1 + (z * z) / n)) * Math.sqrt(Math.max(share * (1 - share), 0) / n + (z * z) / (4 * n * n));
  return [correct === 0 ? 0 : Math.max(0, centre - half), correct === n ? 1 : Math.min(1, centre + half)];
}

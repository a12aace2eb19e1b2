"""The paper, transcribed: slow, literal, in plain Python, and sharing no shortcut with the library.

Every function goes from logits (n rows of k_S numbers) and labels (n integers) to numbers, term by term as the equations
stand in "Bayesian-guided Label Mapping for Visual Reprogramming". What the paper leaves open is settled as the library
documents it, and marked here with the word "open".
"""

import math

import numpy as np


def softmax(row):
    shift = max(row)
    powers = [math.exp(value - shift) for value in row]
    return [power / math.fsum(powers) for power in powers]


def predicted_label(row):
    """ŷ^S: the source label with the largest logit. Open: of equal logits the lowest index."""
    best = 0
    for label in range(1, len(row)):
        if row[label] > row[best]:
            best = label
    return best


def top_labels(row, k):
    """Y^S_K: the k source labels with the largest logits. Open: of equal logits the lowest index."""
    left, taken = dict(enumerate(row)), set()
    for _ in range(k):
        best = min(label for label in left if left[label] == max(left.values()))
        taken.add(best)
        del left[best]
    return taken


def indicator(condition):
    return 1 if condition else 0


def joint_blm(logits, labels, source, target):
    """Eq. 6: p̂_BLM(Y^T = target, Y^S = source | X^T)."""
    n = len(labels)
    total = sum(indicator(labels[i] == target) * indicator(predicted_label(logits[i]) == source) for i in range(n))
    return total / n


def source_blm(logits, labels, source, k_target, smoothing):
    """Eq. 7, its first form: p̂_BLM(Y^S = source | X^T), the sum over target labels written out."""
    n, k_source = len(labels), len(logits[0])
    total = sum(
        indicator(labels[i] == target) * indicator(predicted_label(logits[i]) == source)
        for target in range(k_target)
        for i in range(n)
    )
    return (total + smoothing) / (n + k_source * smoothing)


def joint_blm_plus(logits, labels, source, target, k):
    """Eq. 8: p̂_BLM+(Y^T = target, Y^S = source | X^T)."""
    n = len(labels)
    total = math.fsum(
        indicator(labels[i] == target) * softmax(logits[i])[source] * indicator(source in top_labels(logits[i], k))
        for i in range(n)
    )
    return total / n


def source_blm_plus(logits, labels, source, k, smoothing):
    """Eq. 9: p̂_BLM+(Y^S = source | X^T)."""
    n, k_source = len(labels), len(logits[0])
    total = math.fsum(softmax(logits[i])[source] * indicator(source in top_labels(logits[i], k)) for i in range(n))
    return (total + smoothing) / (n + k_source * smoothing)


def blm(logits, labels, k_target, smoothing):
    """ω_BLM: Eq. 5 with Eqs. 6 and 7, then the columns scaled to sum 1."""
    logits, labels = np.asarray(logits, dtype=np.float64).tolist(), np.asarray(labels).tolist()
    k_source = len(logits[0])
    joint = [[joint_blm(logits, labels, s, t) for t in range(k_target)] for s in range(k_source)]
    source = [source_blm(logits, labels, s, k_target, smoothing) for s in range(k_source)]
    return _omega(joint, source)


def blm_plus(logits, labels, k_target, k, smoothing):
    """ω_BLM+: Eq. 5 with Eqs. 8 and 9, then the columns scaled to sum 1."""
    logits, labels = np.asarray(logits, dtype=np.float64).tolist(), np.asarray(labels).tolist()
    k_source = len(logits[0])
    joint = [[joint_blm_plus(logits, labels, s, t, k) for t in range(k_target)] for s in range(k_source)]
    source = [source_blm_plus(logits, labels, s, k, smoothing) for s in range(k_source)]
    return _omega(joint, source)


def _omega(joint, source):
    """Eq. 5 and the column-wise sum normalisation.

    Open: with λ = 0 a source label that no sample has gives 0/0, which counts as 0; a target label that no sample has
    gives a column of zeros, which becomes uniform.
    """
    k_source, k_target = len(joint), len(joint[0])
    conditional = [[joint[s][t] / source[s] if source[s] > 0 else 0.0 for t in range(k_target)] for s in range(k_source)]
    omega = np.empty((k_source, k_target))
    for t in range(k_target):
        mass = math.fsum(conditional[s][t] for s in range(k_source))
        for s in range(k_source):
            omega[s, t] = conditional[s][t] / mass if mass > 0 else 1 / k_source
    return omega


def frequency_matrix(logits, labels, k_target):
    """d, Algorithm 4."""
    d = np.zeros((len(logits[0]), k_target), dtype=np.int64)
    for row, label in zip(logits, labels, strict=True):
        d[predicted_label(row), label] += 1
    return d


def aggregation_matrix(logits, labels, k_target, k):
    """d′, Algorithm 8."""
    d = np.zeros((len(logits[0]), k_target))
    for row, label in zip(logits, labels, strict=True):
        probabilities = softmax(row)
        for source in top_labels(row, k):
            d[source, label] += probabilities[source]
    return d


def greedy(d):
    """The source label of each target label by Algorithm 5.

    Open: of equal entries the first in row-major order. Open: once the largest entry is 0 (where the algorithm as printed
    would match labels twice), the target labels that are left take the lowest source labels that are left, in order.
    """
    d = np.asarray(d).astype(np.float64)  # a copy, since the algorithm zeroes entries
    k_source, k_target = d.shape
    matched = {}
    while len(matched) != k_target:
        best, place = 0.0, None
        for s in range(k_source):
            for t in range(k_target):
                if d[s, t] > best:
                    best, place = d[s, t], (s, t)
        if place is None:
            target = min(set(range(k_target)) - set(matched))
            matched[target] = min(set(range(k_source)) - set(matched.values()))
            continue
        source, target = place
        matched[target] = source
        d[source, :] = 0
        d[:, target] = 0
    return [matched[t] for t in range(k_target)]


def random_label_mapping(k_source, k_target, choose):
    """The source label of each target label by Algorithm 3; `choose` picks one of the labels that are left."""
    matched = []
    for _ in range(k_target):
        matched.append(choose([label for label in range(k_source) if label not in matched]))
    return matched


def gaussian_scores(logits, labels, k_target, points, shrinkage="oas", priors=False):
    """Linear discriminant scores by the book: class means, pooled covariance, shrinkage, inverse; loops over everything."""
    z, points = np.asarray(logits, np.float64), np.asarray(points, np.float64)
    n, p = z.shape
    centre = z.mean(0)
    means = np.stack([z[labels == t].mean(0) for t in range(k_target)])
    scatter = np.zeros((p, p))
    for row, label in zip(z, labels, strict=True):
        scatter += np.outer(row - means[label], row - means[label])
    freedom = max(n - k_target, 1)
    pooled = scatter / freedom
    trace, trace2 = np.trace(pooled), np.trace(pooled @ pooled)
    if shrinkage == "oas":
        above = (1 - 2 / p) * trace2 + trace**2
        below = (freedom + 1 - 2 / p) * (trace2 - trace**2 / p)
        shrinkage = 1.0 if below <= above else above / below
    covariance = (1 - shrinkage) * pooled + shrinkage * trace / p * np.eye(p)
    precision = np.linalg.inv(covariance)
    scores = np.zeros((len(points), k_target))
    for i, point in enumerate(points):
        for t in range(k_target):
            towards = means[t] - centre
            scores[i, t] = towards @ precision @ (point - centre) - towards @ precision @ towards / 2
            if priors:
                scores[i, t] += np.log(np.mean(labels == t))
    return scores


def clip_logits(images, texts, logit_scale):
    """The logits of CLIP: exp(logit_scale) times the cosine of each of n image and each of k_S text embeddings."""
    rows = []
    for image in np.asarray(images, dtype=np.float64).tolist():
        row = []
        for text in np.asarray(texts, dtype=np.float64).tolist():
            product = math.fsum(a * b for a, b in zip(image, text, strict=True))
            lengths = math.sqrt(math.fsum(a * a for a in image)) * math.sqrt(math.fsum(b * b for b in text))
            row.append(math.exp(logit_scale) * product / lengths)
        rows.append(row)
    return rows


def texts_of(classes, prompts):
    """The input texts: the Cartesian product of the prompt set and the label set; open: prompt by prompt."""
    return [prompt.replace("{}", name.lower().replace("_", " ").replace("-", " ")) for prompt in prompts for name in classes]

"""Small replicas of the paper's data sets, in the layouts in which they are published."""

import io
import json
import pickle

import numpy as np
from PIL import Image

from reprogram.data.paper_sets import PAPER


def encoded(value, kind="PNG", size=(12, 10)):
    buffer = io.BytesIO()
    Image.new("RGB", size, (value,) * 3).save(buffer, kind)
    return buffer.getvalue()


def write_coop(root, name, rows=None, folder=None):
    layout = PAPER[name].layouts[0][1]
    base = root / (folder or layout["folders"][0])
    if rows is None:
        rows = {"train": 4, "val": 2, "test": 3}
        rows = {
            part: [[f"{part}_{i}/a {i}.png", i % 2, ["Big_Cat", "T-Shirt"][i % 2]] for i in range(n)]
            for part, n in rows.items()
        }
    for path, label, _ in (row for part in rows.values() for row in part):
        place = base / layout["images"] / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded(100 + label))
    (base / layout["split_file"]).write_text(json.dumps(rows))
    return base


def cifar_rows(count):
    rows = np.zeros((count, 3, 32, 32), np.uint8)
    rows[:, 0], rows[:, 1], rows[:, 2, 0, 1] = np.arange(count)[:, None, None], 100, 200
    return rows.reshape(count, 3072)


def write_cifar(root, fine, binary, protocol=2):
    folder = root / {(0, 0): "cifar-10-batches-py", (0, 1): "cifar-10-batches-bin", (1, 0): "cifar-100-python"}.get(
        (fine, binary), "cifar-100-binary"
    )
    folder.mkdir(parents=True)
    names = [f"Kind_{index}" for index in range(100 if fine else 10)]
    for stem in ["train", "test"] if fine else [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        rows, labels = cifar_rows(4), [3, 1, 2, 9]
        if binary:
            head = np.array([[7, label] if fine else [label] for label in labels], np.uint8)
            (folder / f"{stem}.bin").write_bytes(np.concatenate([head, rows], axis=1).tobytes())
        else:
            content = {"data": rows, "fine_labels" if fine else "labels": labels, "filenames": ["x"] * 4}
            (folder / stem).write_bytes(pickle.dumps(content, protocol))
    if binary:
        (folder / ("fine_label_names.txt" if fine else "batches.meta.txt")).write_text("\n".join(names) + "\n\n")
    else:
        meta = {"fine_label_names" if fine else "label_names": names}
        (folder / ("meta" if fine else "batches.meta")).write_bytes(pickle.dumps(meta, protocol))
    return folder

"""Groups in shards of answers: held out together, judged together, written on."""

import json
import re

import numpy as np
import pytest

from reprogram.answers.fit import fit_files
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.shards import read_blocks
from reprogram.answers.write import write_logits
from reprogram.data.arrays import from_arrays
from reprogram.errors import ReprogramError
from reprogram.sources.black_box import BlackBox


def views(seed=0, shots=60, each=5):
    """Logits of several views of random shots with random labels: only other views of a shot tell its label."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(shots, 40)).repeat(each, 0) + 0.01 * rng.normal(size=(shots * each, 40))
    labels = np.array(["cat", "dog"])[rng.integers(0, 2, shots)].repeat(each)
    groups = np.array([f"video {shot}" for shot in range(shots)]).repeat(each)
    images = np.array([f"photos/video {row // each}_{row}.jpg" for row in range(shots * each)])
    order = rng.permutation(len(labels))
    return {"logits": logits[order], "label": labels[order], "group": groups[order], "image": images[order]}


@pytest.mark.parametrize("form", ["npz", "jsonl", "csv", "parquet"])
def test_every_format_tells_groups(tmp_path, form):
    content = {name: values[:8] for name, values in views().items()}
    path = tmp_path / f"a.{form}"
    if form == "npz":
        np.savez(path, **content)
    elif form == "jsonl":
        rows = zip(*(values.tolist() for values in content.values()), strict=True)
        path.write_text("".join(json.dumps(dict(zip(content, row, strict=True))) + "\n" for row in rows))
    elif form == "csv":
        header = ["label", "group", *(f"logit_{number}" for number in range(40))]
        rows = [
            [label, group, *logits]
            for label, group, logits in zip(content["label"], content["group"], content["logits"], strict=True)
        ]
        path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({name: values.tolist() for name, values in content.items()}), path)
    assert [group for block in read_blocks(path) for group in block.groups] == content["group"].tolist()


def test_rows_of_a_group_are_on_one_side_whatever_the_shards(tmp_path):
    content = views()
    for start in range(0, 300, 70):
        np.savez(tmp_path / f"{start:03}.npz", **{name: values[start : start + 70] for name, values in content.items()})
    rule = HoldOutRule("share", 0.3, grouped=True)
    sides = {}
    for path in sorted(tmp_path.iterdir()):
        for block in read_blocks(path):
            for group, held in zip(block.groups, rule.sides(block, 0)[1].tolist(), strict=True):
                assert sides.setdefault(group, held) == held
    assert 0.15 < np.mean(list(sides.values())) < 0.45
    assert str(rule) == "about 30 % of the groups, drawn by a hash of each group"


@pytest.mark.parametrize("mapping", ["gaussian", "auto"])
def test_held_out_accuracy_is_that_of_new_groups(tmp_path, mapping):
    content = views()
    np.savez(tmp_path / "grouped.npz", **content)
    content.pop("group")
    np.savez(tmp_path / "blind.npz", **content)
    blind = fit_files([tmp_path / "blind.npz"], mapping)
    aware = fit_files([tmp_path / "grouped.npz"], mapping)
    by_name = fit_files([tmp_path / "blind.npz"], mapping, group="{group}_*.jpg")
    assert blind.held_out.score.accuracy > 0.75
    assert aware.held_out.score.accuracy < 0.7
    assert aware.held_out.score.groups == by_name.held_out.score.groups < 20
    assert aware.held_out.score.effective < aware.held_out.score.n / 2
    assert by_name.held_out.score == aware.held_out.score
    if mapping == "auto":
        assert "on 245 samples in 49 groups" in aware.notes[0]
    assert any("look like views of ones that were fitted" in note for note in blind.notes)
    assert not any("look like views" in note for note in (*aware.notes, *by_name.notes))
    aware.save(tmp_path / "saved")
    assert type(aware).load(tmp_path / "saved").held_out == aware.held_out


def test_groups_on_both_sides_are_noted(tmp_path):
    content = views()
    split = np.where(np.arange(300) % 5 == 0, "test", "train")
    np.savez(tmp_path / "a.npz", **content, split=split)
    assert any("the accuracy flatters" in note for note in fit_files([tmp_path / "a.npz"], "gaussian").notes)
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", **{name: values[split == part] for name, values in content.items()})
    tested = fit_files([tmp_path / "train.npz"], "gaussian", test=[tmp_path / "test.npz"])
    assert any("the accuracy flatters" in note for note in tested.notes)
    assert tested.held_out.score.groups == len(set(content["group"][split == "test"]))


def test_a_pattern_that_fits_nothing_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **views())
    with pytest.raises(ReprogramError, match=re.escape("fits no name in the column image")):
        fit_files([tmp_path / "a.npz"], "gaussian", group="{group}=*")


def test_one_group_cannot_be_held_out(tmp_path):
    content = views(shots=20) | {"group": np.array(["one"] * 100)}
    np.savez(tmp_path / "a.npz", **content)
    fitted = fit_files([tmp_path / "a.npz"], "gaussian")
    assert fitted.held_out is None
    assert any("too few to hold some out" in note for note in fitted.notes)


def test_logits_write_the_groups_on(tmp_path):
    rng = np.random.default_rng(0)
    groups = [f"video {index // 4}" for index in range(40)]
    data = from_arrays(rng.integers(0, 255, (40, 8, 8, 3), dtype=np.uint8), ["a", "b"] * 20, groups=groups)
    model = BlackBox(lambda images: images.mean((2, 3)), labels=["x", "y", "z"], input_size=8)
    manifest = write_logits(model, data, tmp_path / "shards")
    for part, split in data.splits.items():
        (block,) = read_blocks(tmp_path / "shards" / f"{part}-00000.npz")
        assert block.groups == split.groups
    other = from_arrays(data.train.images.numpy(), data.train.labels.numpy(), split=["train", "test"] * 16)
    assert manifest["data_sha256"] != write_logits(model, other, tmp_path / "others")["data_sha256"]

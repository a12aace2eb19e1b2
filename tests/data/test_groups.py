"""Groups stay together in every division of the data, classes stay spread, and the share is the one asked for."""

import csv
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reprogram.data.arrays import from_arrays
from reprogram.data.dataset import ArraySplit
from reprogram.data.groups import grouped_folds, grouped_split
from reprogram.data.load import load_data
from reprogram.data.splits import stratified_folds, stratified_split
from reprogram.errors import ReprogramError

fast = settings(deadline=None, derandomize=True, max_examples=60)
samples = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=2, max_size=60)


def divided(groups, *parts):
    """Whether a group has places in two parts."""
    held = [set(groups[part].tolist()) for part in parts]
    return any(one & other for index, one in enumerate(held) for other in held[index + 1 :])


@fast
@given(pairs=samples, fraction=st.floats(0.05, 0.6), seed=st.integers(0, 99))
def test_a_split_divides_no_group_and_empties_no_class(pairs, fraction, seed):
    labels, groups = (torch.tensor(column) for column in zip(*pairs, strict=True))
    rest, drawn = stratified_split(labels, fraction, seed, "test", groups)
    assert sorted([*rest.tolist(), *drawn.tolist()]) == list(range(len(pairs)))
    assert not divided(groups, rest, drawn)
    assert set(labels[rest].tolist()) == set(labels.tolist())
    again = stratified_split(labels, fraction, seed, "test", groups)
    assert torch.equal(again[1], drawn)


@fast
@given(seed=st.integers(0, 999), size=st.integers(2, 6), fraction=st.floats(0.1, 0.5))
def test_small_groups_come_close_to_the_share_in_every_class(seed, size, fraction):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 3, 40).repeat(size))
    groups = torch.arange(40).repeat_interleave(size)
    _, drawn = grouped_split(labels, groups, fraction, seed, "test")
    for label in range(3):
        total, taken = int((labels == label).sum()), int((labels[drawn] == label).sum())
        if total > size:  # half a group off, and perhaps one more for the share of all
            assert abs(taken - fraction * total) <= 1.5 * size + 1e-9 or taken == total - size
    assert abs(len(drawn) - fraction * len(labels)) <= 1.5 * size + 1e-9


def test_large_groups_still_give_about_the_share_asked_for():
    """Ten classes of four groups: no class alone comes nearer to a tenth by giving one of its quarters."""
    labels = torch.arange(10).repeat_interleave(100)
    groups = torch.arange(40).repeat_interleave(25)
    _, drawn = grouped_split(labels, groups, 0.1, 0, "validation")
    assert len(drawn) == 100
    assert len(labels[drawn].unique()) == 4
    others = {tuple(grouped_split(labels, groups, 0.1, seed, "validation")[1].tolist()) for seed in range(5)}
    assert len(others) > 1


def test_groups_of_one_sample_are_no_groups():
    labels = torch.arange(30) % 3
    for groups in (None, torch.randperm(30)):
        assert torch.equal(stratified_split(labels, 0.3, 1, "x", groups)[1], stratified_split(labels, 0.3, 1, "x")[1])
        assert torch.equal(stratified_folds(labels, 5, 1, groups), stratified_folds(labels, 5, 1))


@fast
@given(pairs=samples, folds=st.integers(2, 6), seed=st.integers(0, 99))
def test_folds_divide_no_group(pairs, folds, seed):
    labels, groups = (torch.tensor(column) for column in zip(*pairs, strict=True))
    found = stratified_folds(labels, folds, seed, groups)
    if len(groups.unique()) < 2:
        assert found is None
        return
    assert found.unique().tolist() == list(range(min(folds, len(groups.unique()))))
    assert all(len(found[groups == group].unique()) == 1 for group in groups.unique())


def test_folds_spread_classes_and_samples():
    labels = torch.arange(4).repeat_interleave(50)
    groups = torch.arange(40).repeat_interleave(5)
    folds = grouped_folds(labels, groups, 5, seed=3)
    assert all(torch.bincount(folds[labels == label]).tolist() == [10] * 5 for label in range(4))


def grouped(seed=0, n=60):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 255, (n, 8, 8, 3), dtype=np.uint8)
    return images, ["cat", "dog"] * (n // 2), [f"video {index // 6}" for index in range(n)]


def test_arrays_keep_their_groups_through_all_splits():
    images, labels, groups = grouped()
    data = load_data((images, labels), groups=groups).with_validation(0.2)
    held = {name: set(split.groups) for name, split in data.splits.items()}
    assert {name: len(names) for name, names in held.items()} == {"train": 6, "val": 2, "test": 2}
    assert len(set.union(*held.values())) == 10
    for split in data.splits.values():
        assert [groups[int(name)] for name in split.names] == split.groups
    other = from_arrays(images, labels, groups=[f"other {group}" for group in groups]).with_validation(0.2)
    assert other.digest() == data.digest() != from_arrays(images, labels).with_validation(0.2).digest()


def test_shots_come_from_many_groups_and_fractions_are_whole_groups():
    images, labels, groups = grouped()
    split = ArraySplit(torch.from_numpy(images).permute(0, 3, 1, 2), [0, 1] * 30).with_groups(groups)
    data = load_data((images, labels), groups=groups, split_seed=None)
    few, more = data.with_fewer(shots=5).train, data.with_fewer(shots=12).train
    for label in (0, 1):
        of_class = [group for group, each in zip(few.groups, few.labels.tolist(), strict=True) if each == label]
        assert len(set(of_class)) == 5
    assert set(few.names) < set(more.names)
    half, third = data.with_fewer(fraction=0.5).train, data.with_fewer(fraction=0.3).train
    assert set(third.names) < set(half.names)
    sizes = [sum(group == name for name in half.groups) for group in set(half.groups)]
    assert set(sizes) <= {3, 6}  # three of each class
    assert len(half) == len(split) // 2


def test_a_class_of_one_group_is_noted_and_data_of_such_classes_are_refused():
    images, _, _ = grouped()
    labels, groups = ["a"] * 20 + ["b"] * 20 + ["c"] * 20, [0] * 20 + [1, 2, 3, 4, 5] * 4 + [6, 7, 8, 9, 10] * 4
    data = from_arrays(images, labels, groups=groups)
    assert any("all images of class 'a' are one group" in note for note in data.notes)
    assert 0 not in data.test.labels
    with pytest.raises(ReprogramError, match="no class with two groups"):
        from_arrays(images, labels, groups=labels)
    lonely = from_arrays(images, labels, split=["train", "test"] * 30, groups=labels).with_validation(0.1)
    assert lonely.val is None
    assert any("no validation images" in note for note in lonely.notes)
    assert any("3 of 3 groups of the test split" in note for note in lonely.notes)


@pytest.mark.parametrize(
    ("groups", "said"), [([1, 2], "2 groups were given for 60 images"), ([[1]] * 60, "one text or number")]
)
def test_groups_that_are_none_are_refused(groups, said):
    images, labels, _ = grouped()
    with pytest.raises(ReprogramError, match=said):
        load_data((images, labels), groups=groups)


@pytest.fixture
def photos(tmp_path):
    """Two classes of three videos of four frames, and a table of them."""
    rng = np.random.default_rng(0)
    rows = []
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for video in range(3):
            for frame in range(4):
                path = tmp_path / "photos" / name / f"{name}-{video}_{frame}.png"
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
                rows.append([path.relative_to(tmp_path).as_posix(), name, f"{name} {video}"])
    with (tmp_path / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label", "Video"], *rows])
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "group"), [("photos", "{group}_*.png"), ("photos.csv", "video"), ("photos.csv", "{group}_*")]
)
def test_folders_and_tables_tell_groups(photos, spec, group):
    data = load_data(photos / spec, group=group)
    assert not set(data.train.groups) & set(data.test.groups)
    assert len(set(data.train.groups) | set(data.test.groups)) == 6
    assert torch.bincount(data.test.labels).tolist() == [4, 4]


def test_parquet_and_npz_tell_groups(photos):
    table = pytest.importorskip("pyarrow.csv").read_csv(photos / "photos.csv")
    pytest.importorskip("pyarrow.parquet").write_table(table, photos / "photos.parquet")
    data = load_data(photos / "photos.parquet", group="video")
    assert data.test.groups == load_data(photos / "photos.csv", group="Video").test.groups
    images, labels, groups = grouped()
    np.savez(photos / "a.npz", images=images, labels=labels, clip=groups)
    assert set(load_data(photos / "a.npz", group="clip").test.groups) < set(groups)
    parts = {
        f"{part}_{what}": values for part in ("train", "test") for what, values in (("images", images), ("labels", labels))
    }
    np.savez(photos / "b.npz", **parts, train_clip=groups, test_clip=groups)
    assert load_data(photos / "b.npz", group="clip").train.groups == groups


@pytest.mark.parametrize(
    ("spec", "group", "said"),
    [
        ("photos", "video", "has no {group}"),
        ("photos", "{group}=*", "fits no image"),
        ("photos.csv", "film", "--group asks for film"),
        ("digits", "film", "tell no groups"),
    ],
)
def test_groups_that_cannot_be_found_are_refused(photos, spec, group, said):
    with pytest.raises(ReprogramError, match=re.escape(said)):
        load_data(spec if spec == "digits" else photos / spec, group=group)


def test_tables_of_the_datasets_library_tell_groups(tmp_path):
    datasets = pytest.importorskip("datasets")
    images, labels, groups = grouped()
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.Value("string"), "film": datasets.Value("string")}
    )
    columns = {"image": [Image.fromarray(image) for image in images], "label": labels, "film": groups}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / "saved")
    data = load_data(f"hf:{tmp_path / 'saved'}", group="film").with_validation(0.2)
    assert {name: len(set(split.groups)) for name, split in data.splits.items()} == {"train": 6, "val": 2, "test": 2}
    with pytest.raises(ReprogramError, match="has no column 'video' in its split train"):
        load_data(f"hf:{tmp_path / 'saved'}", group="video")


def test_data_sets_of_torch_take_groups_by_split():
    images, labels, groups = grouped()
    items = [(torch.from_numpy(image).permute(2, 0, 1), label) for image, label in zip(images, labels, strict=True)]
    data = load_data({"train": items, "test": items[:6]}, groups={"train": groups, "test": ["new"] * 6})
    assert data.with_validation(0.2).val.groups[0] in groups
    assert set(data.test.subset(torch.tensor([1, 3])).groups) == {"new"}
    with pytest.raises(ReprogramError, match="groups for train, test are expected"):
        load_data({"train": items, "test": items}, groups={"train": groups})
    with pytest.raises(ReprogramError, match="only arrays and dictionaries"):
        load_data(data, groups=groups)
    with pytest.raises(ReprogramError, match="data in memory"):
        load_data((images, labels), group="film")

"""Groups from the command line to the result: splits, folds, the choice, the interval and the hint."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from command import SMALL, here
from reprogram.answers.shards import read_blocks
from reprogram.training.settings import TrainingSettings
from reprogram.training.state import FitState
from sides import build, small_data


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Two classes of 25 videos of four frames, which differ a little; the classes differ by nothing but their videos."""
    root, rng = tmp_path_factory.mktemp("films") / "frames", np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for video in range(25):
            scene = rng.integers(0, 230, (6, 6, 3))
            for frame in range(4):
                picture = (scene + rng.integers(0, 4, scene.shape)).astype(np.uint8)
                Image.fromarray(picture).resize((32, 32)).save(root / name / f"{name}{video}_{frame}.png")
    return root


def test_a_run_keeps_groups_together_and_counts_them(frames, tmp_path):
    flags = (*SMALL, "--program", "none", "--mapping", "auto", "--split-seed", "1", "--no-cache")
    blind = here("fit", frames, *flags, "--out", "blind", cwd=tmp_path).stdout
    assert "look like views of ones that were fitted" in blind
    said = here("fit", frames, *flags, "--group", "{group}_*.png", "--out", "run", cwd=tmp_path).stdout
    assert "groups: 36 train / 4 val / 10 test" in said
    assert "look like views" not in said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {part: result["groups"][part] for part in ("train", "val", "test")} == {"train": 36, "val": 4, "test": 10}
    assert result["groups"]["effective_test_images"] < result["images"]["test"] == 40
    assert json.loads((tmp_path / "run" / "selection.json").read_text())["table"][0]["groups"] == 36
    measured = here("evaluate", "run", "--no-cache", cwd=tmp_path).stdout
    assert "in 10 groups that tell as much as" in measured
    shutil.copytree(frames, tmp_path / "copy")
    other = here("evaluate", "run", "--data", "copy", "--group", "{group}_*", "--no-cache", cwd=tmp_path).stdout
    assert "of 200 in 50 groups" in other


def test_logits_write_groups_for_map(frames, tmp_path):
    flags = (*SMALL[:3], "--canvas", 64, "--no-cache", "--data", frames, "--group", "{group}_*.png", "--split", "train")
    here("logits", *flags, "--out", "shards", cwd=tmp_path)
    (block,) = read_blocks(tmp_path / "shards" / "train-00000.npz")
    assert {len(set(block.groups)), block.rows} == {40, 160}
    said = here("map", "shards", "--mapping", "gaussian", "--out", "mapping", cwd=tmp_path).stdout
    assert "drawn by a hash of each group" in said
    printed = here("map", "predict", "mapping", "shards", "--out", "said.csv", cwd=tmp_path).stdout
    assert "of 160 in 40 groups" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fit", "digits", "--group", "video"), "tell no groups"),
        (("fit", "FRAMES", "--group", "video"), "has no {group}"),
        (("fit", "FRAMES", "--group", "{group}+*"), "fits no image"),
        (("evaluate", "FRAMES", "--group", "{group}_*"), "goes with --data"),
        (("logits", "--group", "{group}_*", "--out", "x"), "goes with --data"),
        (("map", "a.npz", "--group", "video"), "has no {group}"),
    ],
)
def test_mistakes_are_one_sentence(frames, tmp_path, arguments, said):
    given = [frames if word == "FRAMES" else word for word in arguments]
    done = here(*given, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_folds_of_training_hold_whole_groups():
    labels, groups = torch.arange(60) % 3, torch.arange(60) // 6
    state = FitState(build("gaussian"), TrainingSettings(), labels, groups=groups)
    assert len(state.folds.unique()) == 5
    assert all(len(state.fold_of((groups == group).nonzero().flatten()).unique()) == 1 for group in range(10))


def test_another_division_into_groups_is_another_fit():
    """A checkpoint is not continued with other groups."""
    data = small_data()
    before = data.digest()
    data.train.with_groups([index // 3 for index in range(len(data.train))])
    once = data.digest()
    data.train.with_groups([index // 4 for index in range(len(data.train))])
    assert len({before, once, data.digest()}) == 3

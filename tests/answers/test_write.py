"""Shards of logits from images: the model's own numbers, whole or not there, continued after a kill."""

import json

import numpy as np
import pytest
import torch

import reprogram.answers.write
import sealed
from reprogram.answers.fit import fit_files
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.answers.write import write_logits
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.errors import ReprogramError
from reprogram.mappings.making import make_mapping
from reprogram.programs.base import make_program
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.black_box import BlackBox
from reprogram.sources.load import load_frozen


@pytest.fixture(scope="module")
def frozen():
    return load_frozen("timm:test_resnet", pretrained=False)


@pytest.fixture(scope="module")
def data(shapes):
    return load_data(str(shapes))


def model_of(frozen, program="none", **settings):
    return Reprogrammed(make_program(program, 64, **settings), frozen, make_mapping("blm", frozen.labels, ["a", "b"]))


def resized(frozen):
    return model_of(frozen)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_the_shards_hold_the_answers_of_the_model(form, frozen, data, tmp_path):
    program = resized(frozen).program
    manifest = write_logits(resized(frozen), data, tmp_path / "s", form=form, shard_size=50, batch_size=16)
    names = [f"test-00000.{form}", f"train-00000.{form}", f"train-00001.{form}"]
    assert [path.name for path in find_shards(tmp_path / "s")] == names
    assert [manifest["shards"][name]["rows"] for name in names] == [30, 50, 46]
    (block,) = read_blocks(tmp_path / "s" / names[0])
    with torch.no_grad():
        expected = frozen(program(data.test.pixels(64, program.interpolation)))
    torch.testing.assert_close(torch.from_numpy(np.array(block.logits)), expected, rtol=1e-4, atol=1e-5)
    assert block.labels == [data.classes[label] for label in data.test.labels]
    assert block.images == data.test.names
    assert block.splits == ["test"] * 30
    assert (manifest["classes"], manifest["source_labels"]) == (list(data.classes), frozen.labels)


def test_a_frozen_model_by_itself_is_asked_at_its_own_size(frozen, data, tmp_path):
    write_logits(frozen, data, tmp_path / "s", split="test")
    (block,) = read_blocks(tmp_path / "s" / "test-00000.npz")
    expected = frozen.logits(data.test.pixels(frozen.input_size, frozen.program_interpolation))
    torch.testing.assert_close(torch.from_numpy(np.array(block.logits)), expected, rtol=1e-4, atol=1e-5)


def test_an_interrupted_call_continues_to_the_same_bytes(frozen, data, tmp_path, monkeypatch):
    def call(folder, **options):
        return write_logits(resized(frozen), data, folder, shard_size=40, **options)

    call(tmp_path / "whole")
    written = []

    def killed(path, columns, write=reprogram.answers.write.write_shard):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path.name)
        write(path, columns)

    monkeypatch.setattr(reprogram.answers.write, "write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path / "cut")
    assert len(json.loads((tmp_path / "cut" / "manifest.json").read_text())["shards"]) == 2
    (tmp_path / "cut" / ".train-00002.npz.99.tmp").write_bytes(b"half")  # what a kill in the middle of a file leaves
    (tmp_path / "cut" / written[0]).write_bytes(b"damaged")
    written.clear()
    monkeypatch.setattr(reprogram.answers.write, "write_shard", lambda *a, w=killed.__defaults__[0]: written.append(w(*a)))
    call(tmp_path / "cut")
    assert contents(tmp_path / "cut").keys() == contents(tmp_path / "whole").keys()
    for name, content in contents(tmp_path / "whole").items():
        if name != "manifest.json":
            assert contents(tmp_path / "cut")[name] == content
    assert len(written) == 3  # of four shards one was whole
    call(tmp_path / "cut")
    assert len(written) == 3


def test_a_kill_before_the_first_shard_is_whole_can_be_continued(frozen, data, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    for name in ("write_sealed", "write_shard"):  # at the first manifest, and at the first shard
        with monkeypatch.context() as patch:
            patch.setattr(reprogram.answers.write, name, killed)
            with pytest.raises(Killed):
                write_logits(resized(frozen), data, tmp_path / name)
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / ".test-00000.npz.99.tmp").write_bytes(b"half")
        write_logits(resized(frozen), data, tmp_path / name)
        assert sorted(contents(tmp_path / name)) == ["manifest.json", "test-00000.npz", "train-00000.npz"]


def test_a_damaged_shard_is_not_fitted(frozen, data, tmp_path):
    write_logits(resized(frozen), data, tmp_path / "s")
    path = tmp_path / "s" / "train-00000.npz"
    fitted = fit_files(tmp_path / "s", "blm")
    columns = dict(np.load(path))
    np.savez(path, **{**columns, "logits": columns["logits"] + 1})  # a sound archive with other numbers
    with pytest.raises(ReprogramError, match=r"train-00000.npz' is not as it was written"):
        fit_files(tmp_path / "s", "blm")
    with pytest.raises(ReprogramError, match=r"train-00000.npz' is not as it was written"):
        list(fitted.predict_files(path))
    manifest = tmp_path / "s" / "manifest.json"
    whole = manifest.read_text()
    shards = sealed.content(manifest)["shards"]
    outside = {**shards, "../train-00000.npz": shards["train-00000.npz"]}
    for change in ({"shards": 7}, {"source_labels": None}, {"classes": [1, 2]}, {"format": 1}, {"shards": outside}):
        sealed.forge(manifest, **change)
        with pytest.raises(ReprogramError, match=r"manifest .*; write the shards again with reprogram logits"):
            fit_files(tmp_path / "s", "blm")
        manifest.write_text(whole)
    manifest.write_text(whole.replace("disc", "dish"))
    with pytest.raises(ReprogramError, match=r"manifest .*manifest.json' has changed since it was written"):
        fit_files(tmp_path / "s", "blm")


def test_log_probabilities_are_told_and_counted_as_such(data, tmp_path):
    """A black box that answers with probabilities below 1 in sum is fitted from files as it is in training."""
    box = BlackBox(
        lambda images: np.tile([0.5, 0.25], (len(images), 1)), labels=["a", "b"], outputs="probabilities", input_size=8
    )
    assert write_logits(box, data, tmp_path / "s")["log_probabilities"]
    saved = fit_files(tmp_path / "s", "blm+", top_k=2, holdout=0)
    torch.testing.assert_close(saved.mapping.statistics.joint().sum(1), torch.tensor([0.5, 0.25], dtype=torch.float64))


def test_the_cache_and_the_program_change_what_they_should(frozen, data, tmp_path):
    program = resized(frozen)
    plain = write_logits(program, data, tmp_path / "plain", split="test")
    cached = write_logits(program, data, tmp_path / "cached", split="test", decoding=Decoding(tmp_path / "cache"))
    assert plain["shards"] == cached["shards"]
    padding = model_of(frozen, "padding", image_size=32)
    other = write_logits(padding, data, tmp_path / "padded", split="test")
    assert other["shards"] != plain["shards"]
    with pytest.raises(ReprogramError, match="made with another program"):
        write_logits(padding, data, tmp_path / "plain", split="test")
    with pytest.raises(ReprogramError, match="made with another"):
        write_logits(program, data, tmp_path / "plain", split="all")


def test_bad_images_are_named_or_left_out(frozen, tmp_path):
    from conftest import draw_folder

    folder = draw_folder(tmp_path / "set", per_class=6)
    (folder / "disc" / "003.png").write_bytes(b"")
    data = load_data(str(folder))
    for cache in (False, tmp_path / "cache"):
        with pytest.raises(ReprogramError, match=r"003.png"):
            write_logits(resized(frozen), data, tmp_path / "out", decoding=Decoding(cache))
        assert not (tmp_path / "out").exists()
        skipping = Decoding(cache, skip_bad=True)
        manifest = write_logits(resized(frozen), data, tmp_path / f"skip-{not cache}", decoding=skipping)
        assert sum(shard["rows"] for shard in manifest["shards"].values()) == 17


def test_mistakes(frozen, data, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    (tmp_path / "file").touch()
    for folder, options, message in (
        ("full", {}, "is not empty"),
        ("file", {}, "is a file"),
        ("new", {"split": "val"}, "no val split"),
        ("new", {"split": "some"}, "train, val, test or all"),
    ):
        with pytest.raises(ReprogramError, match=message):
            write_logits(resized(frozen), data, tmp_path / folder, **options)
    assert not (tmp_path / "new").exists()


def test_classes_with_blanks_around_their_names_are_read_back(frozen, tmp_path):
    from conftest import draw_folder

    folder = draw_folder(tmp_path / "set", per_class=6)
    (folder / "disc").rename(folder / "  disc ")
    write_logits(resized(frozen), load_data(str(folder)), tmp_path / "s")
    assert fit_files(tmp_path / "s", "blm").mapping.classes == ("  disc ", "square", "stripes")


def test_a_manifest_whose_kind_was_damaged_is_still_ours(frozen, data, tmp_path):
    """Taken for somebody else's file, it would be passed over, and the shards fitted unchecked."""
    write_logits(resized(frozen), data, tmp_path / "s")
    manifest = tmp_path / "s" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"reprogram logits"', '"reprogram lofits"'))
    with pytest.raises(ReprogramError, match="manifest"):
        fit_files(tmp_path / "s", "blm")

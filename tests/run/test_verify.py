import json
import shutil

import pytest

import sealed
from command import PADDING, SMALL, here
from reprogram.errors import ReprogramError
from reprogram.files import sealed_line
from reprogram.run.verify import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything that the commands write: a run, shards, a mapping, a cache."""
    from conftest import draw_folder

    root = tmp_path_factory.mktemp("made")
    data = draw_folder(root / "set", per_class=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPROGRAM_CACHE", str(root / "cache"))
        here("fit", data, *SMALL, *PADDING, "--epochs", 2, "--mapping", "auto", "--out", root / "runs" / "one")
        here("logits", *SMALL[:5], "--data", data, "--shard-size", 16, "--out", root / "shards")
        here("map", root / "shards", "--out", root / "mapping")
    return root


@pytest.fixture(scope="module")
def other_run(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other") / "run"
    here("fit", made / "set", *SMALL, *PADDING, "--epochs", 2, "--mapping", "auto", "--seed", 3, "--out", folder)
    return folder


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "made")


def problems(path):
    return [checked.problem for checked in verify(path) if checked.problem is not None]


def files(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["runs", "runs/one", "runs/one/artefact", "shards", "mapping", "cache"])
def test_what_was_written_is_as_it_was(made, name):
    assert problems(made / name) == []


def test_every_file_of_ours_is_looked_at_and_every_change_is_noticed(place):
    """A flipped bit in the middle of each file, as a whole folder and as the one file."""
    for name in ("runs/one", "shards", "mapping", "cache"):
        for file in files(place / name):
            path = place / name / file
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            before = path.read_bytes()
            path.write_bytes(content)
            found = problems(place / name)
            assert found, path
            assert path.name in found[0] or path.parent.name in found[0]
            assert "; " in found[0]
            assert problems(path), path
            path.write_bytes(before)
        assert problems(place / name) == []


def test_missing_parts_are_noticed(place):
    run = place / "runs" / "one"
    for name in ("predictions.csv", "artefact/labels.csv", "artefact/artefact.safetensors", "result.json", "config.json"):
        content = (run / name).read_bytes()
        (run / name).unlink()
        assert problems(run), name
        (run / name).write_bytes(content)
    shutil.rmtree(run / "artefact")
    assert ["artefact' is missing; continue" in text for text in problems(run)] == [True]
    next((place / "shards").glob("*.npz")).unlink()
    assert problems(place / "shards")


def test_a_result_of_fewer_epochs_than_the_run_has_now_is_noticed(place):
    """What a kill leaves of a finished run that goes on for longer: each file is whole, but they tell of two runs."""
    run = place / "runs" / "one"
    lines = (run / "metrics.jsonl").read_text()
    record = {**json.loads(lines.splitlines()[-1]), "epoch": 3}
    del record["sha256"]
    (run / "metrics.jsonl").write_text(lines + sealed_line(record))
    assert ["tells of 2 epochs" in text and "of 3, so the run was stopped" in text for text in problems(run)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "name", ["artefact", "checkpoint", "metrics.jsonl", "config.json", "predictions.csv", "result.json"]
)
def test_a_part_of_another_run_is_noticed(place, other_run, name):
    """Each part is whole and sealed, and still it does not belong there."""
    run = place / "runs" / "one"
    assert problems(run) == []
    for part in (run / name,):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    source = other_run / name
    shutil.copytree(source, run / name) if source.is_dir() else shutil.copy(source, run / name)
    assert problems(run)


def test_a_precision_that_was_left_to_the_device_is_no_other_run(place):
    run = place / "runs" / "one"
    sealed.forge(run / "config.json", precision="auto")
    assert problems(run) == []
    sealed.forge(run / "config.json", precision="bf16")
    assert problems(run)


def test_files_of_two_runs_do_not_fit_together(place):
    mapping, other = place / "mapping", place / "runs" / "one" / "artefact"
    shutil.copy(other / "artefact.safetensors", mapping)
    assert "do not fit together" in problems(mapping)[0]


def test_what_is_not_ours_cannot_be_verified(place, tmp_path):
    (tmp_path / "text.csv").write_text("a,b\n")
    (tmp_path / "x.json").write_text("{}")
    for path in (place / "set", tmp_path / "text.csv", tmp_path / "x.json"):
        with pytest.raises(ReprogramError, match="holds nothing that reprogram writes"):
            verify(path)
    with pytest.raises(ReprogramError, match="does not exist"):
        verify(tmp_path / "nowhere")


def test_what_leads_nowhere_cannot_be_verified(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path, words in (
        (tmp_path / "loop", "does not exist"),
        ("a\0b", "zero byte"),
        ("~nobody-here/run", "not known here"),
    ):
        with pytest.raises(ReprogramError, match=words):
            verify(path)


def test_links_are_not_followed_in_circles(place):
    (place / "runs" / "loop").symlink_to(place)
    assert len(verify(place / "runs")) == len(verify(place / "runs" / "one"))


def test_the_command_tells_and_its_exit_code_too(place):
    done = here("verify", place / "runs")
    assert "ok   checkpoint" in done.stdout
    assert "are as they were written" in done.stdout
    sealed.forge(place / "runs" / "one" / "config.json", epochs="many")
    (place / "runs" / "one" / "predictions.csv").write_text("")
    done = here("verify", place / "runs" / "one", check=False)
    assert done.returncode == 2
    assert done.stdout.count("BAD") == 3
    assert done.stderr.startswith("reprogram: ")
    assert done.stderr.endswith("(3 of 14 cannot be used; see above)\n")

"""A run folder that somebody else has made, and who knows how to seal: everything in it may be meant badly."""

import json
import os
import resource
import shutil
import subprocess
import sys

import pytest
import torch

import sealed
from command import PADDING, SMALL, here
from reprogram.files import read_tensors, sealed_text, write_sealed, write_tensors


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("received") / "run"
    here("fit", shapes, *SMALL, *PADDING, "--epochs", 2, "--mapping", "blm+", "--out", folder)
    return folder


ODD = [None, -1, 10**400, 1e308, "\x1b[2J", [], {"a": {"b": []}}]
PLACES = [
    ("artefact", ("format",)),
    ("artefact", ("mapping",)),
    ("artefact", ("mapping", "name")),
    ("artefact", ("mapping", "seed")),
    ("artefact", ("mapping", "top_k")),
    ("artefact", ("mapping", "weighted")),
    ("artefact", ("mapping", "unknown")),
    ("artefact", ("source_labels",)),
    ("artefact", ("classes",)),
    ("artefact", ("spanned",)),
    ("artefact", ("files",)),
    ("artefact", ("updates",)),
    ("artefact", ("program",)),
    ("artefact", ("program", "name")),
    ("artefact", ("program", "canvas")),
    ("artefact", ("program", "image_size")),
    ("artefact", ("program", "interpolation")),
    ("artefact", ("program", "unknown")),
    ("artefact", ("frozen",)),
    ("artefact", ("frozen", "name")),
    ("artefact", ("frozen", "pretrained")),
    ("artefact", ("frozen", "weights")),
    ("artefact", ("frozen", "seed")),
    ("artefact", ("frozen", "fingerprint")),
    ("artefact", ("frozen", "normalisation")),
    ("artefact", ("frozen", "normalisation", "mean")),
    ("artefact", ("frozen", "classes")),
    ("artefact", ("frozen", "progress")),
    ("artefact", ("frozen", "unknown")),
]


#: What may be odd without harm: it is another true statement, or says that nothing is known.
HARMLESS = [("updates",), ("frozen", "weights"), ("frozen", "classes"), ("mapping", "seed"), ("mapping", "top_k")]


def put(content, keys, value):
    for key in keys[:-1]:
        content = content[key]
    content[keys[-1]] = value


def command_of(name, folder, shapes):
    return {
        "predict": ("predict", folder, next((shapes / "test" / "disc").iterdir())),
        "evaluate": ("evaluate", folder),
        "resume": ("fit", "--resume", "--out", folder, "--epochs", 3),
        "update": ("update", folder, "--remove", "disc"),
        "map": ("map", "predict", folder, folder / "missing.npz"),
        "logits": ("logits", "--run", folder, "--out", folder.parent / "shards"),
        "verify": ("verify", folder),
    }[name]


def one_sentence(done):
    """Exit code 2 and one line; what is said of the run before that does not matter."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("reprogram: warning")]
    assert line.startswith("reprogram: ")


@pytest.mark.parametrize(("file", "keys"), PLACES, ids=lambda value: ".".join(value) if isinstance(value, tuple) else value)
def test_odd_values_in_an_artefact(run, shapes, tmp_path, file, keys):
    folder = shutil.copytree(run, tmp_path / "run")
    path = folder / "artefact" / "artefact.json"
    before = sealed.content(path)
    for value in ODD:
        if value is None and keys[-1] in ("progress", "unknown"):
            continue  # says that nothing is said
        content = json.loads(json.dumps(before))
        put(content, keys, value)
        write_sealed(path, content)
        done = here(*command_of("predict", folder, shapes), check=False)
        if done.returncode:
            one_sentence(done)
        else:
            assert keys in HARMLESS, value


@pytest.mark.parametrize("verb", ["evaluate", "resume", "update", "logits", "verify"])
@pytest.mark.parametrize("damage", ["artefact", "tensors", "config", "given", "images", "checkpoint"])
def test_every_verb_refuses_what_it_reads(run, shapes, tmp_path, verb, damage):
    folder = shutil.copytree(run, tmp_path / "run")
    if damage == "artefact":
        sealed.forge(folder / "artefact" / "artefact.json", classes=["disc", 7])
    elif damage == "tensors":
        path = folder / "artefact" / "artefact.safetensors"
        tensors, header = read_tensors(path, "artefact")
        tensors["program.theta"][:] = torch.nan
        digest = write_tensors(path, tensors, header)
        files = sealed.content(folder / "artefact" / "artefact.json")["files"]
        sealed.forge(folder / "artefact" / "artefact.json", files={**files, "artefact.safetensors": digest})
    elif damage == "config":
        sealed.forge(folder / "config.json", epochs=[], canvas="wide")
    elif damage == "given":
        sealed.forge(folder / "config.json", given=3)
    elif damage == "images":
        (folder / "images.txt").write_bytes(sealed_text(["00"]).encode().replace(b"00", b"\xff0"))
    else:
        tensors, header = read_tensors(folder / "checkpoint" / "state.safetensors", "checkpoint")
        write_tensors(folder / "checkpoint" / "state.safetensors", tensors, {**header, "records": 5})
    done = here(*command_of(verb, folder, shapes), check=False)
    reads = {
        "evaluate": {"artefact", "tensors", "config", "given", "images"},
        "resume": {"artefact", "config", "given", "checkpoint"},
        "update": {"artefact", "tensors", "config", "given", "images"},
        "logits": {"artefact", "tensors", "config", "given"},
        "verify": {"artefact", "tensors", "config", "given", "images", "checkpoint"},
    }[verb]
    if damage in reads:
        one_sentence(done)
    else:
        assert done.returncode == 0, done.stderr


def test_a_description_of_a_giant_takes_no_memory(run, shapes, tmp_path):
    """30,000 labels times 30,000 classes, a canvas of a million: some kilobytes that ask for terabytes."""
    folder = shutil.copytree(run, tmp_path / "run")
    path = folder / "artefact" / "artefact.json"
    before = sealed.content(path)
    names = [f"n{number}" for number in range(30_000)]
    for number, change in enumerate(
        ({"source_labels": names, "classes": names}, {"program": {**before["program"], "canvas": 10**6, "image_size": 4}})
    ):
        write_sealed(path, {**before, **change})
        arguments = list(map(str, command_of("predict", folder, shapes)))
        code = f"import sys; from reprogram.cli.main import main; sys.exit(main({arguments!r}))"
        limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, 3 * 2**30))  # noqa: E731
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit, timeout=120)
        one_sentence(done)
        assert ("names 30,000" in done.stderr, "has a canvas of 1000000" in done.stderr)[number], done.stderr


def test_links_and_pipes_in_place_of_files(run, shapes, tmp_path):
    for name in ("artefact/artefact.json", "artefact/artefact.safetensors", "config.json", "images.txt"):
        folder = shutil.copytree(run, tmp_path / name.replace("/", "-"))
        (folder / name).unlink()
        os.mkfifo(folder / name)
        one_sentence(here("verify", folder, check=False))
        if name.startswith("artefact"):
            one_sentence(here(*command_of("predict", folder, shapes), check=False))
        if name == "config.json":
            one_sentence(here("fit", "--resume", "--out", folder, check=False))


@pytest.mark.parametrize("name", ["artefact", "checkpoint"])
def test_links_that_lead_out_are_not_written_through(run, shapes, tmp_path, name):
    folder = shutil.copytree(run, tmp_path / "run")
    outside = (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(outside)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    verbs = ("resume", "update") if name == "artefact" else ("resume",)
    for verb in verbs:
        done = here(*command_of(verb, folder, shapes), check=False)
        one_sentence(done)
        assert "is a link" in done.stderr
    assert before == {path: path.read_bytes() for path in outside.iterdir()}

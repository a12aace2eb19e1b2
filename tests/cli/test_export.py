"""`reprogram export`: mistakes are found before torch is imported, and are one sentence."""

import pytest

from command import here


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("nowhere",), "is not a folder"),
        (("folder", "--backbone", "b.onnx"), "goes with --format onnx-adapter"),
        (("folder", "--format", "onnx-adapter", "--backbone", "folder"), "is a folder, but a"),
        (("folder", "--format", "tflite"), "tflite"),
        (("folder", "--out", "folder"), "exists already and is no export"),
        (("folder", "--out", "done"), "add --replace"),
        (("folder", "--weights", "gone.pt"), "does not exist"),
        (("folder", "--images", "0"), "images"),
        (("folder", "--out", "new"), "neither a run nor a mapping"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_a_sentence(flags, words, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "export.json").write_text("{}")
    done = here("export", *flags, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "folder"]

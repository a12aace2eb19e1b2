"""Exports at work without torch: as docs/export.md shows, and through `load_exported`, which refuses what does not fit."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from command import PADDING, SMALL, here
from reprogram.errors import ReprogramError
from reprogram.export import Backbone, load_exported
from reprogram.export.adapters import write_adapter
from reprogram.files.listings import write_listing
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.verify import verify

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    """A run whose probabilities differ from image to image."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    here("fit", "--data", shapes, "--mapping", "gaussian", "--epochs", 1, "--out", folder, *PADDING, *SMALL)
    return folder


@pytest.fixture(scope="module")
def exports(run, tmp_path_factory):
    """The run as one file and as an adapter, made by the command."""
    root = tmp_path_factory.mktemp("exports")
    done = here("export", run, "--out", "photos", cwd=root)
    assert re.search(r"compared on 30 images of .* \(test\).*: probabilities differ by at most \d\.\de", done.stdout)
    place = ("--out", "tasks/photos", "--backbone", "tasks/backbone.onnx")
    here("export", run, "--format", "onnx-adapter", *place, cwd=root)
    return root


def script(name):
    (found,) = re.findall(rf"```py {name}\n(.*?)```", PAGE, flags=re.DOTALL)
    return f"import sys\nfor name in ('torch', 'reprogram'): sys.modules[name] = None\n{found}"


def alone(code, *arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loader_of_the_page_says_what_the_live_model_says(exports, run, shapes):
    files = sorted((shapes / "test").rglob("*.png"))[::3]
    said = alone(script("classify.py"), "photos", *files, cwd=exports).splitlines()
    predictions = Reprogrammed.load(run).predict(files)
    assert len(said) == len(files)
    for line, label, share in zip(said, predictions.labels, predictions.confidence.tolist(), strict=True):
        found = re.fullmatch(r".*: (\w+) \((.*)\)", line)
        assert found[1] == label
        assert float(found[2]) == pytest.approx(share, abs=2e-4)


def test_the_adapter_script_of_the_page_runs(exports):
    size = load_exported(exports / "photos").image_size
    assert alone(script("adapters.py"), size, cwd=exports) == "(2, 3)\n"


def test_both_forms_say_the_same_and_need_no_torch(exports, run):
    whole, task = load_exported(exports / "photos"), load_exported(exports / "tasks" / "photos", threads=1)
    model = Reprogrammed.load(run)
    pixels = torch.randint(0, 256, (9, 3, whole.image_size, whole.image_size), generator=torch.Generator().manual_seed(0))
    rows = np.ascontiguousarray(pixels.to(torch.uint8).permute(0, 2, 3, 1).numpy())
    live = model.predict(pixels.to(torch.uint8)).probabilities.numpy()
    for each in (whole, task):
        assert np.abs(each.probabilities(rows) - live).max() < 1e-4
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\nfrom reprogram.export import load_exported\n"
        "task = load_exported('photos'); s = task.image_size\n"
        "print(task.probabilities(np.zeros((4, s, s, 3), np.uint8)).shape)"
    )
    assert alone(code, cwd=exports) == "(4, 3)\n"


@pytest.mark.parametrize(
    "images",
    [np.zeros((1, 3, 8, 8), np.uint8), np.zeros((8, 8, 3), np.uint8), np.zeros((1, 64, 64, 3)), None],
    ids=["channels first", "one", "floats", "none"],
)
def test_other_images_are_refused(exports, images):
    with pytest.raises(ReprogramError, match=r"images are .*, but uint8 \(N, "):
        load_exported(exports / "photos").probabilities(images)


def copied(exports, tmp_path):
    root = tmp_path / "tasks"
    for path in (exports / "tasks").rglob("*"):
        if path.is_file():
            place = root / path.relative_to(exports / "tasks")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return root


def test_damage_is_noticed(exports, tmp_path):
    root = copied(exports, tmp_path)
    assert not [one.problem for one in verify(root) if one.problem]
    for name, words in (
        ("photos/task.onnx_adapter", "has changed"),
        ("backbone.onnx", "has changed"),
        ("photos/README.md", ""),
    ):
        good = (root / name).read_bytes()
        (root / name).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert [one.path.name for one in verify(root) if one.problem] == [Path(name).name]
        if words:
            with pytest.raises(ReprogramError, match=words):
                load_exported(root / "photos")
        (root / name).write_bytes(good)
    (root / "photos" / "task.onnx_adapter").unlink()
    assert "is missing" in next(one.problem for one in verify(root / "photos") if one.problem)
    with pytest.raises(ReprogramError, match="does not exist"):
        load_exported(root / "photos")
    (root / "photos" / "export.json").write_text("{}")
    with pytest.raises(ReprogramError, match="no SHA-256"):
        load_exported(root / "photos")


def test_what_is_sealed_but_does_not_fit_is_refused(exports, tmp_path):
    root = copied(exports, tmp_path)
    folder, backbone = root / "photos", Backbone(root / "backbone.onnx")
    facts = json.loads((folder / "export.json").read_text())
    good = {name: value for name, value in facts.items() if name not in ("sha256", "files", "kind")}

    def refused(words, **changed):
        (folder / "export.json").unlink()
        write_listing(folder, {**good, **changed})
        with pytest.raises(ReprogramError, match=words):
            load_exported(folder, backbone)

    refused("another version", version=2)
    refused("expected form", labels="abc")
    refused(r"adapter .* is expected", labels=["a", "b"])
    refused("another model, other weights", source={**good["source"], "key": "0" * 64})
    refused("but onnx or onnx-adapter is expected", format="onnx")
    refused("expected form", kind="something else")
    write_adapter(folder / "task.onnx_adapter", {"weight": np.zeros((2, 2), np.float32)})
    refused(r"adapter .* holds .*weight")
    (root / "not.onnx").write_bytes(b"nothing")
    with pytest.raises(ReprogramError, match="no ONNX file of reprogram export"):
        Backbone(root / "not.onnx")
    with pytest.raises(ReprogramError, match="is no backbone"):
        Backbone(exports / "photos" / "model.onnx")

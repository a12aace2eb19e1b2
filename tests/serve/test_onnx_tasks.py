"""The same service with onnxruntime: the same numbers as with torch, one session, and no torch where it is not needed."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

from command import here
from reprogram.errors import ReprogramError
from reprogram.export import export_run
from reprogram.serve.onnx_tasks import NO_EVIDENCE, OnnxTasks
from reprogram.sources.load import load_frozen
from serving import Process, Running, make_task, picture

GOOD = picture(1)
NAMES = ("birds", "boats", "padded", "padded-other", "padded-too")
LIMIT = 1e-4  # of a probability, as an export is held to it


@pytest.fixture(scope="module")
def exports(made_tasks, small, tmp_path_factory):
    """The five tasks as adapters on one backbone, as `reprogram export` leaves them."""
    root = tmp_path_factory.mktemp("exports") / "tasks"
    root.mkdir()
    for name in NAMES:
        options = {"format": "onnx-adapter", "backbone": root / "backbone.onnx", "frozen": small, "images": 8}
        export_run(made_tasks / name, root / name, **options)
    return root


@pytest.fixture(scope="module")
def light(exports, tmp_path_factory):
    """A server for them in onnxruntime."""
    copy = shutil.copytree(exports, tmp_path_factory.mktemp("light") / "tasks")
    with Running(copy, watch=False, backend="onnxruntime") as client:
        yield client


@pytest.fixture
def tasks(exports, tmp_path):
    table = OnnxTasks(2**30, tmp_path / "cache")
    for name in NAMES[:4]:
        table.add(name, exports / name, new_model=True)
    return table


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("calibration", ["temperature", "none"])
def test_the_probabilities_are_those_of_torch(light, server, task, calibration):
    files = [(f"{seed}.png", picture(seed, size=(64 - seed, 30 + seed))) for seed in range(7)]
    status, expected = server.predict(task, *files, top=3, calibration=calibration)
    assert status == 200
    status, said = light.predict(task, *files, top=3, calibration=calibration)
    assert status == 200
    shares, differences = [], []
    for row, other in zip(said["predictions"], expected["predictions"], strict=True):
        assert row["evidence"] == []
        assert other["evidence"] != []
        found, wanted = ({one["label"]: one["probability"] for one in each["top"]} for each in (row, other))
        shares.append([wanted[label] for label in sorted(wanted)])
        differences += [abs(found[label] - wanted[label]) for label in wanted]
        assert row["probability"] == found[row["label"]]
    assert max(differences) <= LIMIT
    # the network is one of random weights, and says nearly the same of all images: this is what they are told apart by
    assert np.ptp(shares, axis=0).max() > 20 * max(differences)


def test_a_task_tells_that_there_is_no_evidence(light, server):
    _, said = light("GET", "/v1/tasks/birds")
    _, expected = server("GET", "/v1/tasks/birds")
    assert said.pop("evidence") == NO_EVIDENCE
    assert said.pop("backend") == "onnxruntime"
    assert said.pop("artefact") != expected.pop("artefact")  # of the artefact's JSON file, which lists the other one
    assert said == {**expected, "temperature": pytest.approx(expected["temperature"])}


@pytest.mark.parametrize(("option", "words"), [({"coverage": 0.9}, "prediction sets"), ({"unlike": 0.05}, "none of these")])
def test_what_needs_source_logits_is_refused(light, option, words):
    status, said = light.predict("birds", ("a", GOOD), **option)
    assert status == 422
    assert words in said["error"]
    assert "--backend torch" in said["error"]


@pytest.mark.parametrize("shape", [(2, 3, 64, 64), (2, 64, 64, 3), (2, 3, 50, 70), (2, 4, 64, 64)], ids=str)
@pytest.mark.parametrize("kind", ["UINT8", "FP32"])
def test_tensors_of_the_protocol_say_nearly_the_same(light, server, shape, kind):
    pixels = np.random.default_rng(3).integers(0, 255, shape)
    values = pixels.tolist() if kind == "UINT8" else (pixels / 255).tolist()
    body = {"inputs": [{"name": "image", "datatype": kind, "shape": list(shape), "data": values}]}
    (status, said), (_, expected) = (each("POST", "/v2/models/birds/infer", body) for each in (light, server))
    assert status == 200
    found, wanted = (next(one for one in each["outputs"] if one["name"] == "probabilities") for each in (said, expected))
    assert found["shape"] == [2, 3]
    whole = shape[1:] != (3, 50, 70) and shape[1] != 4  # else Pillow rounds to grey levels, and torch does not
    assert found["data"] == pytest.approx(wanted["data"], abs=LIMIT if whole else 0.02)


@pytest.mark.parametrize("value", [1.5, -1.0])
def test_pixels_out_of_range_are_refused(light, value):
    body = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3, 2, 2], "data": [value] * 12}]}
    status, said = light("POST", "/v2/models/birds/infer", body)
    assert status == 422
    assert "outside [0, 1]" in said["error"]


def test_evidence_of_the_protocol_is_an_empty_list(light):
    body = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 3, 2, 2], "data": [0] * 12}]}
    _, said = light("POST", "/v2/models/boats/infer", {**body, "outputs": [{"name": "evidence"}]})
    assert said["outputs"][0]["data"] == ["[]"]


def test_one_session_and_one_way_for_those_with_the_same_program(tasks, exports):
    tasks.add("padded-too", exports / "padded-too")  # a model that is in memory is not loaded again
    assert len(tasks.backbones) == tasks.models == 1
    ways = {name: tasks.get(name).way for name in NAMES}
    assert ways["birds"] is ways["boats"]
    assert ways["padded"] is ways["padded-too"]
    assert len(set(ways.values())) == 3


def test_what_comes_later_must_be_exported_and_of_a_model_in_memory(tasks, made_tasks, tmp_path):
    with pytest.raises(ReprogramError, match="exported only as the service starts"):
        tasks.add("late", made_tasks / "boats")
    other = load_frozen("timm:test_resnet", pretrained=False, seed=1)
    make_task(tmp_path / "made", other, ["a", "b"])
    export_run(tmp_path / "made", tmp_path / "whole", frozen=other, images=2)
    with pytest.raises(ReprogramError, match="not in memory here"):
        tasks.add("whole", tmp_path / "whole")
    assert "late" not in tasks.entries
    tasks.add("whole", tmp_path / "whole", new_model=True)  # one file with its task in it is a model of its own
    assert tasks.models == 2
    whole = tasks.get("whole")
    said = whole.mapping.predict(whole.way([np.zeros((3, 64, 64), np.uint8)]))
    assert said.probabilities.sum() == pytest.approx(1)
    assert said.labels[0] in ("a", "b")


def test_a_damaged_adapter_is_refused(tasks, exports, tmp_path):
    bad = shutil.copytree(exports / "boats", tmp_path / "bad")
    content = bytearray((bad / "task.onnx_adapter").read_bytes())
    content[-1] ^= 1
    (bad / "task.onnx_adapter").write_bytes(content)
    with pytest.raises(ReprogramError, match="SHA-256"):
        tasks.add("bad", bad)


def test_runs_are_exported_as_the_service_starts(made_tasks, server):
    paths = (made_tasks / "birds", made_tasks / "padded")
    with Running(*paths, watch=False, backend="onnxruntime") as client:
        for task in ("birds", "padded"):
            found, expected = (each.predict(task, ("a", GOOD))[1]["predictions"][0] for each in (client, server))
            assert found["probability"] == pytest.approx(expected["probability"], abs=LIMIT)


def test_exports_are_served_without_torch_and_followed(exports, tmp_path, monkeypatch):
    """As a person starts it, where importing torch is an error."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "torch.py").write_text("raise ImportError('torch is not to be imported here')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "absent"), os.environ.get("PYTHONPATH", "")]))
    shutil.copytree(exports, tmp_path / "tasks", ignore=shutil.ignore_patterns("boats"))
    served = Process(tmp_path / "tasks", "--backend", "onnxruntime", log=tmp_path / "log")
    try:
        status, said = served.client.predict("birds", ("a.png", GOOD), ("b.png", b"no image"))
        assert status == 200
        assert said["predictions"][0]["label"] in ("crane", "wren", "owl")
        assert "error" in said["predictions"][1]
        shutil.copytree(exports / "boats", tmp_path / ".boats")
        (tmp_path / ".boats").rename(tmp_path / "tasks" / "boats")
        for _ in range(100):
            status, said = served.client.predict("boats", ("a.png", GOOD))
            if status == 200:
                break
            signal.sigtimedwait([], 0.1)
        assert said["predictions"][0]["label"] in ("ship", "canoe")
    finally:
        assert served.end(signal.SIGTERM) == 0
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert "task-added" in events


@pytest.mark.parametrize(
    ("flags", "words"), [(("--allow-upload",), "takes no artefacts"), (("--device", "cuda"), "computes on the CPU")]
)
def test_what_it_cannot_do_is_a_sentence(tmp_path, flags, words):
    done = here("serve", tmp_path, "--backend", "onnxruntime", *flags, check=False)
    assert done.returncode == 2
    assert words in done.stderr

"""The service as clients see it: a real server, real HTTP."""

import base64
import json
import re

import pytest

from command import here
from reprogram.reprogrammed import Reprogrammed
from serving import CANVAS, bomb, form, picture

GOOD = picture(1)


@pytest.mark.parametrize("task", ["birds", "boats", "padded"])
def test_the_probabilities_are_those_of_predict(server, made_tasks, tmp_path, task):
    """One image by itself is the same batch, so the same float; under another kernel of the same network, nearly."""
    (tmp_path / "one.png").write_bytes(GOOD)
    printed = here("predict", made_tasks / task, tmp_path / "one.png", "--format", "json").stdout
    expected = json.loads(printed)
    status, said = server.predict(task, ("one.png", GOOD))
    assert status == 200
    assert said["task"] == task
    (row,) = said["predictions"]
    assert row["label"] == expected["label"]
    assert row["name"] == "one.png"
    assert row["probability"] == pytest.approx(expected["probability"], abs=1e-5)
    assert [one["source"] for one in row["evidence"]] == [one["source"] for one in expected["evidence"]]
    assert len(row["evidence"]) == 3


def test_the_same_batch_gives_the_same_floats(server, made_tasks, small):
    """As the library gives them for the prepared model: to the last bit."""
    model = Reprogrammed.load(made_tasks / "birds", small)
    model.accelerate()
    files = [(f"{seed}.png", picture(seed)) for seed in range(4)]
    expected = model.predict([content for _, content in files])
    _, said = server.predict("birds", *files, top=3)
    for row, label, shares in zip(said["predictions"], expected.labels, expected.probabilities, strict=True):
        assert row["label"] == label
        assert [one["probability"] for one in row["top"]] == shares.sort(descending=True).values.tolist()


@pytest.mark.parametrize("form_of", ["form", "json", "data url", "raw"])
def test_images_come_in_four_forms(server, form_of):
    text = base64.b64encode(GOOD).decode()
    _, expected = server.predict("boats", ("1", GOOD), evidence=1)
    if form_of == "raw":
        answer = server("POST", "/v1/tasks/boats/predict?evidence=1", GOOD, {"Content-Type": "image/png"})
    elif form_of == "form":
        answer = server.predict("boats", ("1", GOOD), evidence=1)
    else:
        text = f"data:image/png;base64,{text}" if form_of == "data url" else text
        answer = server("POST", "/v1/tasks/boats/predict", {"images": [text], "evidence": 1})
    assert answer == (200, expected)


def test_sets_and_strangers_are_told_when_they_are_asked_for(server, made_tasks, small):
    expected = Reprogrammed.load(made_tasks / "birds", small).predict([GOOD], coverage=0.9, unlike=0.05)
    status, said = server.predict("birds", ("a", GOOD), coverage=0.9, unlike=0.05)
    (row,) = said["predictions"]
    assert status == 200
    assert row["set"] == list(expected.sets[0])
    assert row["p_typical"] == pytest.approx(float(expected.typicality[0]), abs=0.03)
    assert row["none_of_these"] == bool(expected.unlike[0])
    status, said = server.predict("boats", ("a", GOOD), unlike=0.05)
    assert status == 422
    assert "only mapping 'gaussian'" in said["error"]


def test_a_bad_image_among_good_ones_is_a_row_with_an_error(server):
    status, said = server.predict("boats", ("a.png", GOOD), ("b.png", GOOD[:60]), ("c.png", GOOD))
    assert status == 200
    assert ["error" in row for row in said["predictions"]] == [False, True, False]
    assert "b.png" in said["predictions"][1]["error"]


WRONG = {
    "no task": (404, "nobody", form(("a", GOOD)), "no task 'nobody'"),
    "hostile name": (404, "%1b%5b31m", form(("a", GOOD)), "no task"),
    "no image": (422, "boats", form(), "no image"),
    "empty file": (415, "boats", form(("a", b"")), "image a is empty"),
    "text": (415, "boats", form(("notes.txt", b"hello")), "image notes.txt is no image"),
    "truncated": (422, "boats", form(("a.png", GOOD[:-200])), "image a.png cannot be decoded"),
    "bomb": (413, "boats", form(("a.png", bomb())), "pixels"),
    "cut form": (400, "boats", (form(("a", GOOD))[0][:-20], form()[1]), "cut off"),
    "no boundary": (400, "boats", (b"x", {"Content-Type": "multipart/form-data"}), "boundary"),
    "broken form": (400, "boats", (b"x" * 50, form()[1]), "form"),
    "no json": (400, "boats", (b"{", {"Content-Type": "application/json"}), "JSON"),
    "a list": (400, "boats", (b"[]", {"Content-Type": "application/json"}), "no object"),
    "deep json": (400, "boats", (b'{"a":' * 100 + b"1" + b"}" * 100, {"Content-Type": "application/json"}), "JSON"),
    "no base64": (422, "boats", (b'{"images": ["%"]}', {"Content-Type": "application/json"}), "base64"),
    "a number": (422, "boats", (b'{"images": [1]}', {"Content-Type": "application/json"}), "no text"),
    "a path": (422, "boats", (b'{"images": ["/etc/passwd"]}', {"Content-Type": "application/json"}), "base64"),
    "other type": (415, "boats", (GOOD, {"Content-Type": "text/html"}), "text/html"),
    "wrong option": (422, "boats", form(("a", GOOD), coverage=2), "coverage"),
    "unknown option": (422, "boats", form(("a", GOOD), colour="red"), "'colour'"),
    "too many": (413, "boats", form(*[("a", GOOD)] * 65), "at most 64"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_sentence(server, case):
    status, task, (body, headers), words = WRONG[case]
    found, said = server("POST", f"/v1/tasks/{task}/predict", body, headers)
    assert (found, list(said)) == (status, ["error"])
    assert words in said["error"]
    assert "\n" not in said["error"]
    assert "\x1b" not in said["error"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("POST", "/v1/tasks", 405)])
def test_what_is_not_there_is_said_in_json(server, method, path, status):
    found, said = server(method, path)
    assert found == status
    assert "/docs" in said["error"]


def test_the_lists_tell_what_there_is_and_no_path(server, made_tasks):
    status, said = server("GET", "/v1/tasks")
    assert status == 200
    assert [one["name"] for one in said["tasks"]] == ["birds", "boats", "padded", "padded-other", "padded-too"]
    _, one = server("GET", "/v1/tasks/birds")
    assert one["class_names"] == ["crane", "wren", "owl"]
    assert one["model"] == "timm:test_resnet"
    assert str(made_tasks.parent) not in json.dumps([said, one])


def test_uploads_are_refused_unless_they_are_allowed(server):
    assert server("PUT", "/v1/tasks/new", b"", {"Content-Type": "application/zip"})[0] == 404
    assert server("DELETE", "/v1/tasks/boats")[0] == 404
    assert server("GET", "/v1/tasks/boats")[0] == 200


def test_every_answer_has_the_strict_headers(server):
    for path in ("/", "/page.js", "/page.css", "/docs", "/v1/tasks", "/nothing", "/metrics"):
        _, headers, _ = server.raw("GET", path)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_pages_name_no_outside_resource(server):
    for path in ("/", "/page.js", "/page.css", "/docs", "/favicon.svg"):
        content = server.raw("GET", path)[2].decode()
        assert len(content) > 100
        assert not re.search(r"(https?:)?//\w", content.replace("http://www.w3.org/2000/svg", "")), path


def test_the_reference_names_every_path(server):
    _, description = server("GET", "/openapi.json")
    page = server.raw("GET", "/docs")[2].decode()
    assert len(description["paths"]) >= 9
    assert all(f"<code>{path}</code>" in page for path in description["paths"])


def test_metrics_count_requests_and_images(server):
    def images():
        text = server.raw("GET", "/metrics")[2].decode()
        return float(next(line.split()[-1] for line in text.splitlines() if line.startswith("reprogram_images_total")))

    before = images()
    server.predict("boats", ("a", GOOD), ("b", GOOD))
    assert images() == before + 2
    text = server.raw("GET", "/metrics")[2].decode()
    assert 'reprogram_requests_total{route="/v1/tasks/{name}/predict",status="200"}' in text
    assert "reprogram_tasks 5.0" in text


def test_v2_health_and_metadata(server):
    assert server("GET", "/v2/health/live") == (200, {"live": True})
    assert server("GET", "/v2/health/ready") == (200, {"ready": True})
    assert server("GET", "/v2")[1]["extensions"] == ["evidence", "prediction_sets"]
    assert server("GET", "/v2/models/birds/ready") == (200, {"name": "birds", "ready": True})
    _, said = server("GET", "/v2/models/birds")
    assert said["inputs"][0] == {"name": "image", "datatype": "UINT8", "shape": [-1, 3, CANVAS, CANVAS]}
    assert said["outputs"][2]["shape"] == [-1, 3]
    assert server("GET", "/v2/models/nobody/ready")[0] == 404

"""Tasks come and go while the service runs: from clients, and from a folder."""

import io
import json
import shutil
import time
import zipfile

import pytest

from reprogram.errors import ReprogramError
from reprogram.serve.limits import Refusal
from reprogram.serve.store import found_tasks, unpacked
from reprogram.sources.load import load_frozen
from serving import Running, form, make_task, picture

GOOD = picture(3)
ZIP = {"Content-Type": "application/zip"}


def packed(folder, prefix=""):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, prefix + file.name)
    return stream.getvalue()


@pytest.fixture(scope="module")
def client(made_tasks, tmp_path_factory):
    """A server that takes uploads from whoever knows the token, into a folder of its own."""
    root = tmp_path_factory.mktemp("store")
    shutil.copytree(made_tasks / "boats", root / "boats")
    (root / "boats" / "note.txt").write_text("a run has more than an artefact")
    with Running(root, token="open sesame", uploads=True, prepare=False) as client:
        client.folder = root
        yield client


def test_a_token_is_needed_for_all_but_the_page_and_health(client):
    for path in ("/", "/docs", "/openapi.json", "/v2/health/ready"):
        assert client.raw("GET", path, headers={"Authorization": ""})[0] == 200
    for shown in ("", "Bearer", "Bearer wrong", "Bearer open sesame2", "Basic open sesame", "Bearer \u00e9"):
        for method, path in (("GET", "/v1/tasks"), ("GET", "/metrics"), ("PUT", "/v1/tasks/x"), ("GET", "/v2/models/boats")):
            status, headers, body = client.raw(method, path, headers={"Authorization": shown})
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "token" in json.loads(body)["error"]
    assert client("GET", "/v1/tasks")[0] == 200


def test_an_artefact_is_added_replaced_and_removed(client, made_tasks):
    assert client.predict("birds", ("a", GOOD))[0] == 404
    began = time.perf_counter()
    status, facts = client("PUT", "/v1/tasks/birds", packed(made_tasks / "birds"), ZIP)
    seconds = time.perf_counter() - began
    assert status == 201, facts
    assert seconds < 5
    assert facts["classes"] == 3
    assert client.predict("birds", ("a", GOOD))[0] == 200
    other = made_tasks / "padded-too"
    body, headers = form(*[(file.name, file.read_bytes()) for file in sorted(other.iterdir())])
    assert client("PUT", "/v1/tasks/birds", body, headers)[0] == 200
    assert client("GET", "/v1/tasks/birds")[1]["class_names"] == ["x", "y", "z"]
    assert (client.folder / "birds" / "artefact.json").read_bytes() == (other / "artefact.json").read_bytes()
    assert client("DELETE", "/v1/tasks/birds") == (200, {"removed": "birds"})
    assert client.predict("birds", ("a", GOOD))[0] == 404
    assert not (client.folder / "birds").exists()
    assert client("DELETE", "/v1/tasks/birds")[0] == 404


def test_what_is_no_artefact_leaves_nothing(client, made_tasks, tmp_path):
    good = made_tasks / "birds"
    flipped = {file.name: file.read_bytes() for file in good.iterdir()}
    flipped["artefact.safetensors"] = flipped["artefact.safetensors"][:-1] + b"\x55"
    other = load_frozen("timm:test_resnet", pretrained=False, seed=1)
    make_task(tmp_path / "foreign", other, ["a", "b"], sets=False)
    cases = [
        (b"no zip", ZIP, 422, "zip archive is damaged"),
        (packed(good)[:-30], ZIP, 422, "zip archive is damaged"),
        (packed(good, "../../"), ZIP, 201, None),
        (packed(tmp_path / "foreign"), ZIP, 422, "not in memory here"),
        (*form(*flipped.items()), 422, "changed since it was written"),
        (*form(("artefact.json", flipped["artefact.json"])), 422, "lacks artefact.safetensors"),
        (b"{}", {"Content-Type": "application/json"}, 415, "application/zip"),
    ]
    for body, headers, expected, words in cases:
        status, said = client("PUT", "/v1/tasks/fresh", body, headers)
        assert status == expected, said
        if words is None:  # names in an archive are no paths: only their last part counts
            assert client("DELETE", "/v1/tasks/fresh")[0] == 200
        else:
            assert words in said["error"]
            assert str(client.folder) not in said["error"]
        assert not (client.folder / "fresh").exists()
    for name in ("..", ".hidden", "a%2Fb", "%00", "x" * 101):
        assert client("PUT", f"/v1/tasks/{name}", packed(good), ZIP)[0] in (404, 405, 422)
    assert {path.name for path in client.folder.iterdir() if not path.name.startswith(".")} == {"boats"}


def test_a_task_that_was_not_uploaded_stays(client, made_tasks):
    for method, body in (("PUT", packed(made_tasks / "birds")), ("DELETE", None)):
        status, said = client(method, "/v1/tasks/boats", body, ZIP)
        assert status == 422
        assert "was not uploaded" in said["error"]
    assert client("GET", "/v1/tasks/boats")[1]["class_names"] == ["ship", "canoe"]


def test_clients_write_neither_through_links_nor_over_what_cannot_be_served(client, made_tasks, tmp_path):
    elsewhere = shutil.copytree(made_tasks / "padded", tmp_path / "elsewhere")
    damaged = client.folder / "unservable"
    damaged.mkdir()
    (damaged / "artefact.json").write_text("{}")
    (client.folder / "linked").symlink_to(elsewhere)
    (client.folder / "dangling").symlink_to(tmp_path / "nowhere")
    before = {path: path.read_bytes() for path in (*elsewhere.iterdir(), damaged / "artefact.json")}
    try:
        for name in ("linked", "dangling", "unservable"):
            status, said = client("PUT", f"/v1/tasks/{name}", packed(made_tasks / "birds"), ZIP)
            assert (status, "was not uploaded" in said["error"]) == (422, True), said
            assert client("DELETE", f"/v1/tasks/{name}")[0] in (404, 422)
        assert {path: path.read_bytes() for path in before} == before
        assert not (tmp_path / "nowhere").exists()
        assert (client.folder / "linked").is_symlink()
    finally:
        (client.folder / "linked").unlink()
        (client.folder / "dangling").unlink()
        shutil.rmtree(damaged)


def test_a_folder_is_followed(client, made_tasks, tmp_path):
    def appears(name, there):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if (client("GET", f"/v1/tasks/{name}")[0] == 200) is there:
                return True
            time.sleep(0.1)
        return False

    make_task(tmp_path / "one", load_frozen("timm:test_resnet", pretrained=False), ["u", "v"], sets=False)
    (tmp_path / "one").rename(client.folder / "watched")
    (client.folder / "damaged").mkdir()
    (client.folder / "damaged" / "artefact.json").write_text("{}")
    assert appears("watched", True)
    assert client("GET", "/v1/tasks/watched")[1]["class_names"] == ["u", "v"]
    assert client("GET", "/v1/tasks/damaged")[0] == 404
    shutil.rmtree(client.folder / "watched")
    shutil.rmtree(client.folder / "damaged")
    assert appears("watched", False)


def test_paths_become_names(made_tasks, tmp_path):
    tasks, folder = found_tasks([made_tasks])
    assert (sorted(tasks), folder) == (["birds", "boats", "padded", "padded-other", "padded-too"], made_tasks)
    run = tmp_path / "run"
    shutil.copytree(made_tasks / "boats", run / "artefact")
    assert found_tasks([run, made_tasks / "birds"]) == ({"run": run, "birds": made_tasks / "birds"}, None)
    with pytest.raises(ReprogramError, match="both be called 'birds'"):
        found_tasks([made_tasks, shutil.copytree(made_tasks / "birds", tmp_path / "birds")])
    with pytest.raises(ReprogramError, match="are folders of runs"):
        found_tasks([made_tasks, tmp_path])


def test_a_zip_bomb_is_refused_before_it_fills_the_memory():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("artefact.json", b"\0" * 10_000_000)
    with pytest.raises(Refusal, match="unpacks to more") as refusal:
        unpacked(stream.getvalue(), 1_000_000)
    assert refusal.value.status == 413

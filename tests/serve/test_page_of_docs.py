"""Every curl line of docs/serve.md is run as it stands, but for the port, and answered."""

import base64
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from serving import Running, picture

TEXT = (Path(__file__).parent.parent.parent / "docs" / "serve.md").read_text()
LINES = re.findall(r"^curl .*$", TEXT, flags=re.MULTILINE)
CURL = shutil.which("curl")


@pytest.fixture(scope="module")
def desk(made_tasks, tmp_path_factory):
    """What the lines name, and a server for them."""
    root = tmp_path_factory.mktemp("desk")
    for number, name in enumerate(("new.jpg", "other.jpg")):
        (root / name).write_bytes(picture(number, kind="JPEG"))
    encoded = base64.b64encode((root / "new.jpg").read_bytes()).decode()
    (root / "request.json").write_text(json.dumps({"images": [encoded], "top": 3}))
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [encoded]}
    (root / "tensor.json").write_text(json.dumps({"inputs": [tensor]}))
    shutil.copytree(made_tasks / "boats", root / "artefact")
    shutil.make_archive(str(root / "artefact"), "zip", root / "artefact")
    shutil.copytree(made_tasks / "birds", root / "runs" / "birds")
    with Running(root / "runs", uploads=True, prepare=False) as client:
        yield root, client.address


def test_the_page_has_them():
    assert len(LINES) > 12


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_every_line_is_answered(desk):
    folder, address = desk
    for line in LINES:
        words = shlex.split(line.replace("http://127.0.0.1:8000", address))
        done = subprocess.run(
            [CURL, "-sS", "-w", "\n%{http_code}", *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60
        )
        body, _, status = done.stdout.rpartition("\n")
        assert (done.returncode, status) in ((0, "200"), (0, "201")), f"{line}: {done.stderr} {body}"
        if "/predict" in line:
            assert json.loads(body)["predictions"][0]["label"] in ("crane", "wren", "owl")

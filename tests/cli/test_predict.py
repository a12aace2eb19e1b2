"""`reprogram predict`: any number of images, into a file or onto the screen, and exit codes that say what happened."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from command import here
from reprogram.text import read_csv


@pytest.fixture(scope="module")
def images(shapes, tmp_path_factory):
    """A folder with 30 images, one of which is bad."""
    folder = tmp_path_factory.mktemp("images")
    for path in sorted((shapes / "test").rglob("*.png")):
        (folder / f"{path.parent.name}-{path.name}").symlink_to(path)
    (folder / "disc-005.png").unlink()
    (folder / "disc-005.png").write_bytes(b"no image")
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture
def listed(monkeypatch):
    """Put bytes onto standard input."""

    def put(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def test_all_formats_hold_the_same_rows(run, images, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("o.csv", "o.jsonl", "o.parquet"):
        done = here("predict", run[0], images, "--out", tmp_path / name, "--top", 2, check=False)
        assert done.returncode == 3, done.stderr
        assert done.stdout.splitlines() == [
            f"29 images classified into {tmp_path / name}",
            "note: 1 file was left out: 1 .txt",
            "1 of 30 images could not be read; the column error says why",
        ]
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert parquet.read_table(tmp_path / "o.parquet").to_pylist() == lines
    table = read_csv(tmp_path / "o.csv")
    assert [row["image"] for row in table] == [row["image"] for row in lines] == sorted(map(str, images.glob("*.png")))
    for row, line in zip(table, lines, strict=True):
        assert (row["label"], row["error"]) == (line["label"] or "", line["error"] or "")
        assert row["probability"] == ("" if line["error"] else str(line["probability"]))
        assert row["top"] == "|".join(f"{one['label']} {one['probability']}" for one in line["top"] or ())
    text = here("predict", run[0], images, "--evidence", 0, "--top", 2, check=False)
    assert text.returncode == 3
    assert text.stderr.splitlines()[-2:] == ["note: 1 file was left out: 1 .txt", "1 of 30 images could not be read"]
    first, second = lines[0]["top"]
    shares = [f"({100 * one['probability']:.1f} %)" for one in (first, second)]
    assert text.stdout.splitlines()[0] == f"{lines[0]['image']}: {first['label']} {shares[0]}; {second['label']} {shares[1]}"
    assert f"disc-005.png: no class: image '{images}/disc-005.png' cannot be decoded" in text.stdout
    for form, name in (("csv", "o.csv"), ("jsonl", "o.jsonl"), ("json", "o.jsonl")):
        printed = here("predict", run[0], images, "--top", 2, "--format", form, check=False).stdout
        assert printed == (tmp_path / name).read_text()


def test_a_list_on_standard_input(run, images, listed, tmp_path):
    names = sorted(map(str, images.glob("square*")))[:3]
    listed("\n".join(names).encode())
    assert [line.split(": ")[0] for line in here("predict", run[0], "-", "--evidence", 0).stdout.splitlines()] == names
    listed("\0".join([*names, str(tmp_path / "two\nlines.png")]).encode())
    done = here("predict", run[0], "-", "--null", "--format", "jsonl", check=False)
    assert done.returncode == 3
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["image"] == f"{tmp_path}/two\nlines.png"
    assert "does not exist" in last["error"]
    listed(b"")
    assert here("predict", run[0], "-", check=False).returncode == 2


def test_a_command_that_was_killed_is_continued(run, images, tmp_path):
    """By SIGKILL, when the first rows are kept, with processes that decode; then the same command with --resume."""
    command = ["predict", run[0], images, images, "--batch-size", 5, "--save-every", 10]
    here(*command, "--out", tmp_path / "whole.csv", check=False)
    out, journal = tmp_path / "out.csv", tmp_path / ".out.csv.journal"
    code = (  # slow enough to be killed in the middle
        "import sys, time, torch\n"
        "from reprogram.reprogrammed import Reprogrammed\n"
        "torch.set_num_threads(1)\n"
        "real = Reprogrammed.source_logits\n"
        "Reprogrammed.source_logits = lambda *images: (time.sleep(0.3), real(*images))[1]\n"
        "from reprogram.cli.main import main\n"
        "if __name__ == '__main__': sys.exit(main())\n"
    )
    (tmp_path / "slow.py").write_text(code)
    slow = subprocess.Popen([sys.executable, tmp_path / "slow.py", *map(str, [*command, "--workers", 1, "--out", out])])
    until = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(slow.pid, signal.SIGKILL)
    slow.wait()
    kept = json.loads(journal.read_text())["rows"]
    assert 10 <= kept < 60
    assert not out.exists()
    refused = here(*command, "--out", out, check=False)
    assert (refused.returncode, "--resume" in refused.stderr) == (2, True)
    done = here(*command, "--out", out, "--resume", check=False)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0] == f"{kept} images are there already"
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert "nothing was done" in here(*command, "--out", out, "--resume").stdout
    other = here(*command[:2], images / "disc-000.png", "--out", out, "--replace")
    assert other.stdout == f"1 image classified into {out}\n"


def test_ray_gives_the_same_rows(run, images, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(images)
    command = ["predict", run[0], ".", "nowhere*.png", "--batch-size", 8]
    here(*command, "--out", tmp_path / "here.csv", check=False)
    done = here(*command, "--out", tmp_path / "ray.csv", "--engine", "ray", "--processes", 1, check=False)
    assert done.returncode == 3, done.stderr
    there, expected = (read_csv(tmp_path / name) for name in ("ray.csv", "here.csv"))
    assert next(row["image"] for row in there) == "./disc-000.png"
    for row, same in zip(there, expected, strict=True):
        assert (row["image"], row["label"], bool(row["error"])) == (same["image"], same["label"], bool(same["error"]))
        assert float(row["probability"] or 0) == pytest.approx(float(same["probability"] or 0), abs=2e-6)

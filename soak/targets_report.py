"""Fuzz targets: a run folder that was received from somebody, told about by `reprogram report` and `reprogram figure`."""

import contextlib
import io
import json
import os
import shutil
from functools import cache
from pathlib import Path

from reprogram.cli.main import main
from reprogram.errors import ReprogramError
from reprogram.figures.drawing import lacking, plot_of
from reprogram.figures.registry import FIGURES
from reprogram.files import sealed_json, sha256
from reprogram.report.write import report_text
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.record import read_run
from soak.mutate import TEXT
from soak.sealing import reseal_json, reseal_lines, reseal_tensors
from soak.structure import JSON
from soak.targets import FolderTarget, Target
from soak.targets_binary import warm_timm
from soak.verbs import TRAINED, draw

_TABLE = "predictions.csv"


def _make(folder: Path) -> None:
    images = folder.parent / "images"
    draw(images)
    before, out = os.environ.get("REPROGRAM_CACHE"), folder.parent / "run"
    words = ("fit", "--data", str(images / "shapes"), *TRAINED, "--program", "padding", "--mapping", "blm+", "--no-cache")
    with contextlib.redirect_stdout(io.StringIO()):
        code = main([*words, "--out", str(out)])
    assert (code, os.environ.get("REPROGRAM_CACHE")) == (0, before)
    shutil.copytree(out, folder, dirs_exist_ok=True)
    (folder / "report.html").unlink()
    shutil.rmtree(folder / "checkpoint")
    shutil.rmtree(out)


def _seal(name: str, data: bytes) -> bytes:
    if name.endswith(".json"):
        return reseal_json(data)
    if name.endswith(".jsonl"):
        return reseal_lines(data)
    return reseal_tensors(data) if name.endswith(".safetensors") else data


def _settle(folder: Path, name: str) -> None:
    """Let the result name the checksum of a table that was damaged."""
    if name == _TABLE:
        content = json.loads((folder / "result.json").read_text())
        content["files"][_TABLE] = sha256(folder / _TABLE)
        del content["sha256"]
        (folder / "result.json").write_text(sealed_json(content))


@cache
def _model(folder: Path) -> Reprogrammed:
    return Reprogrammed.load(folder / "artefact")


def _tell(folder: Path) -> None:
    """The page, and the data of every figure that shows no images."""
    model = _model(folder)  # of the good folder, once: the artefact has targets of its own
    record = read_run(folder)
    for name, kind in FIGURES.items():
        if not kind.examples and not kind.several and lacking(kind, record) is None:
            with contextlib.suppress(ReprogramError):
                plot_of(name).rows(record)
    page = report_text([record], images=False, models=[model])
    page.encode()
    assert page.count("<script") == page.count("</script>") == 2


TARGETS: list[Target] = [
    FolderTarget(
        "report.run",
        _make,
        _tell,
        files=("*.json", "*.jsonl", "*.csv", "program.safetensors"),
        seal=_seal,
        settle=_settle,
        mutators=(*JSON, *TEXT),
        dictionary=(b"</script>", b"1e400", b"-1", b"999999999", b"NaN", b"null"),
        slow=True,
        warm=warm_timm,
    )
]

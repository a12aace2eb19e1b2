"""The commands that are killed, what stands there before them, and how two states of a folder are compared.

`demo` is left out: it is six runs of `fit` on a larger model, which take minutes.
"""

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMED = re.compile(rb'<(span|td) class="(?:n )?seconds[^"]*">[^<]*</\1>|<!-- sha256: [0-9a-f]{64} -->')
SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64")
TRAINED = (*SMALL, "--batch-size", "16", "--lr", "0.05", "--epochs", "2", "--val-fraction", "0.25")
#: What tells how long something took, and so is never twice the same.
TIMES = ("seconds", "images_per_second", "spent")
_ANY_FIT = ("fit", "--data", "../data/shapes", *TRAINED, "--out", "run")
_FIT = (*_ANY_FIT, "--program", "padding", "--mapping", "blm+")
_FIT_AUTO = (*_ANY_FIT, "--program", "padding", "--mapping", "auto", "--no-cache")
# a mapping that is wrong often enough for a trial of training
_TRY = ("fit", "--data", "../data/shapes", *TRAINED[:-1], "0.6", "--mapping", "rlm", "--seed", "2", "--out", "run")
_SVG = ("matplotlib.backends.backend_svg",)
_ONNX = ("onnx", "onnxscript", "torch.onnx._internal.exporter._core")  # onnxruntime begins a thread
_LOGITS = ("logits", "--data", "../data/shapes", *SMALL, "--shard-size", "8", "--out", "shards")
_PREDICT = ("map", "predict", "mapping", "shards", "--out")
#: Files that are replaced several times on the way: whole at each moment, but neither as before nor as at the end.
_GROWING = ("checkpoint/state.safetensors", "program.safetensors", "metrics.jsonl", "manifest.json", "config.json")


@dataclass(frozen=True)
class Scenario:
    """A command and where it is run.

    Attributes:
        name: by which trials are repeated.
        start: a name in `STARTS`, what stands there before.
        command: what is killed.
        again: what continues it, if the same command asks for that; by default nothing else does.
        rival: the same work with another result, started while the command is at work.
        once: whether a second success would do the work twice, so that it is not repeated when it was done.
        needs: modules that it alone imports, which take seconds and are imported before it is forked.
        keeps: what it may leave beside its place when it is stopped or hindered, to continue from there.
    """

    name: str
    start: str
    command: tuple[str, ...]
    again: tuple[str, ...] = ()
    rival: tuple[str, ...] = ()
    once: bool = False
    needs: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()


def _predicting(out: str, start: str = "run", *more: str) -> Scenario:
    """`predict --out`, which keeps what is done beside the file after every two images."""
    images = ("predict", "run", "../data/shapes/test", "--out", out, *more)
    command = (*images, "--batch-size", "2", "--save-every", "2", "--workers", "0")
    return Scenario(
        f"predict {out.rpartition('.')[2]}{' replace' if more else ''}",
        start,
        command,
        again=() if more else (*command, "--resume"),
        rival=(*command, "--top", "2"),
        keeps=(f".{out}.partial", f".{out}.journal"),
    )


#: What stands there before: the commands that make it (a first word that is no verb is one of `_STEPS`).
STARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "empty": (),
    "run": (_FIT,),
    "run without cache": (_FIT, ("forget", "cache")),
    "predictions": (_FIT, ("predict", "run", "../data/more", "--out", "rows.csv")),
    "list of mistakes": (_FIT, ("evaluate", "run", "--split", "train", "--out", "wrong.csv")),
    "shards": (_LOGITS,),
    "shards, one missing": (_LOGITS, ("forget", "shards/train-00001.npz")),
    "folder": (("folder", "shards"),),
    "mapping": (
        _LOGITS,
        ("map", "shards", "--mapping", "blm", "--out", "mapping"),
        (*_PREDICT, "old.csv"),
        ("logits", "--data", "../data/more", *SMALL, "--out", "extra"),
        ("forget", "cache"),
    ),
}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("fit", "empty", _FIT, again=(*_FIT, "--resume"), rival=(*_FIT, "--seed", "1")),
        Scenario(
            "fit auto",
            "empty",
            _FIT_AUTO,
            again=(*_FIT_AUTO, "--resume"),  # the flags may be repeated
        ),
        Scenario(
            "fit without program",
            "empty",
            (*_ANY_FIT, "--program", "none", "--mapping", "blm", "--no-cache"),
            again=("fit", "--resume", "--out", "run"),
        ),
        Scenario("fit by default", "empty", _TRY, again=(*_TRY, "--resume")),
        Scenario("fit longer", "run", ("fit", "--resume", "--out", "run", "--epochs", "3")),
        Scenario("logits", "empty", _LOGITS, rival=(*_LOGITS[:-1], "shards", "--seed", "1")),
        Scenario("logits continued", "shards, one missing", _LOGITS),
        Scenario("logits parquet", "folder", (*_LOGITS, "--format", "parquet", "--split", "train", "--no-cache")),
        Scenario("map", "shards", ("map", "shards", "--mapping", "blm", "--out", "mapping")),
        Scenario(
            "map replace",
            "mapping",
            ("map", "shards", "--mapping", "flm", "--out", "mapping", "--replace"),
            rival=("map", "shards", "--mapping", "ilm", "--out", "mapping", "--replace"),
        ),
        Scenario("map predict csv", "mapping", (*_PREDICT[:-2], "extra", "--out", "old.csv")),
        Scenario("map predict jsonl", "mapping", (*_PREDICT, "new.jsonl")),
        Scenario("map predict parquet", "mapping", (*_PREDICT, "new.parquet")),
        Scenario("update mapping", "mapping", ("update", "mapping", "--remove", "disc")),
        Scenario("update mapping to", "mapping", ("update", "mapping", "--add", "extra", "--out", "changed")),
        Scenario("update run", "run", ("update", "run", "--add", "../data/more"), once=True),
        Scenario("update run to", "run", ("update", "run", "--remove", "disc", "--out", "changed")),
        Scenario("report", "run", ("report", "run", "--out", "page.html")),
        Scenario("report again", "run", ("report", "run", "--no-images")),
        Scenario("predict", "run", ("predict", "run", "../data/shapes/test/disc/000.png", "--format", "json")),
        *map(_predicting, ("rows.csv", "rows.jsonl", "rows.parquet")),
        _predicting("rows.csv", "predictions", "--replace"),
        Scenario("figure", "run", ("figure", "run", "confusion", "--out", "figures/confusion.svg"), needs=_SVG),
        Scenario("figure csv", "run", ("figure", "run", "confusion", "--out", "confusion.csv")),
        Scenario("evaluate", "run without cache", ("evaluate", "run")),
        Scenario("evaluate out", "list of mistakes", ("evaluate", "run", "--split", "test", "--out", "wrong.csv")),
        Scenario("audit out", "mapping", ("audit", "shards", "extra", "--out", "old.csv")),
        Scenario("forecast out", "shards", ("forecast", "shards", "--out", "forecast.json")),
        Scenario("export", "run", ("export", "run", "--out", "exported", "--replace"), needs=_ONNX),
        Scenario(
            "export adapter",
            "run",
            ("export", "run", "--format", "onnx-adapter", "--out", "task", "--backbone", "backbone.onnx", "--replace"),
            needs=_ONNX,
        ),
    )
}


def draw(folder: Path) -> None:
    """Draw the images: shapes/ with train/ and test/, and more/ with a class that is new."""
    import numpy as np
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(7)
    wanted = {
        "shapes/train": {"disc": 5, "square": 5, "stripes": 5},
        "shapes/test": {"disc": 2, "square": 2, "stripes": 2},
        "more": {"square": 3, "ring": 3},
    }
    for part, classes in wanted.items():
        for name, count in classes.items():
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                picture = Image.new("RGB", (40, 40), tuple(int(value) for value in rng.integers(0, 90, 3)))
                pen, colour = ImageDraw.Draw(picture), tuple(int(value) for value in rng.integers(120, 255, 3))
                x, y, side = (int(value) for value in rng.integers((6, 6, 10), (14, 14, 18)))
                if name in ("disc", "ring"):
                    pen.ellipse((x, y, x + side, y + side), fill=colour if name == "disc" else None, outline=colour)
                elif name == "square":
                    pen.rectangle((x, y, x + side, y + side), fill=colour)
                else:
                    for line in range(0, 40, 6):
                        pen.line((0, line + x, 40, line + y), fill=colour, width=2)
                picture.save(folder / part / name / f"{index:03}.png")


def warm_up() -> None:
    """Carry out commands that train nothing: what is imported late and kept is then there for every forked child."""
    from reprogram.cli.main import main

    before, kept = Path.cwd(), os.environ["REPROGRAM_CACHE"]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["REPROGRAM_CACHE"] = f"{folder}/trial/cache"
        draw(Path(folder) / "data")
        (Path(folder) / "trial").mkdir()
        os.chdir(f"{folder}/trial")
        for words in (_LOGITS, (*_LOGITS, "--no-cache"), ("map", "shards", "--mapping", "blm", "--out", "mapping")):
            if main(list(words)) != 0:
                raise SystemExit(f"{' '.join(words)} fails")
        main(["fit", "--data", "../data/none", *TRAINED])  # only read, then refused
        os.chdir(before)
        os.environ["REPROGRAM_CACHE"] = kept


def take_step(trial: Path, words: tuple[str, ...]) -> bool:
    """Carry out a step of `STARTS` that is no command; whether it was one."""
    if words[0] == "forget":
        path = trial / words[1]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif words[0] == "folder":
        (trial / words[1]).mkdir()
    else:
        return False
    return True


State = dict[str, bytes]


def state_of(folder: Path) -> State:
    """Everything in a folder by its path there: what files hold, without times; nothing for folders."""
    return {
        str(path.relative_to(folder)): b"" if path.is_dir() else b"%o " % (path.stat().st_mode & 0o777) + timeless(path)
        for path in sorted(folder.rglob("*"))
    }


def timeless(path: Path) -> bytes:
    """What a file holds, without how long anything took."""
    content = path.read_bytes()
    try:
        if path.suffix == ".json":
            return _dumped(json.loads(content))
        if path.suffix == ".jsonl" and path.name.startswith("metrics"):
            return b"\n".join(_dumped(json.loads(line)) for line in content.splitlines())
        if path.suffix == ".safetensors":
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])
            facts = {name: _parsed(text) for name, text in header.pop("__metadata__", {}).items()}
            return _dumped([header, facts]) + content[8 + length :]
        if path.suffix == ".html":
            return _TIMED.sub(b"", content)
    except ValueError:  # damaged, so compared as it is
        pass
    return content


def _parsed(text: str) -> Any:
    """A header and the digest that stands before it."""
    digest, _, rest = text.partition(" ")
    return {"sha256": digest, "header": json.loads(rest)}


def _dumped(value: Any) -> bytes:
    plain = _without_times(value)
    if plain != value:  # and without the seals that cover the times
        plain = _without_times(plain, ("sha256",))
    return json.dumps(plain).encode()


def _without_times(value: Any, names: tuple[str, ...] = TIMES) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part, names) for name, part in value.items() if name not in names}
    return [_without_times(part, names) for part in value] if isinstance(value, list) else value


def outside(state: Mapping[str, bytes], folder: str) -> State:
    """A state without a folder: the cache, where it could not be written to."""
    return {path: content for path, content in state.items() if path != folder and not path.startswith(f"{folder}/")}


def visible(state: Mapping[str, bytes]) -> State:
    """A state without what is hidden: what a process that is at work, or was killed, has not put into its place."""
    return {path: content for path, content in state.items() if not _hidden(path)}


def _hidden(path: str) -> bool:
    return any(part.startswith(".") for part in Path(path).parts)


def differences(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> list[str]:
    """What is other than expected, file by file."""
    return [
        f"{path} {'is missing' if path not in found else 'is left over' if path not in expected else 'is different'}"
        for path in sorted({*found, *expected})
        if found.get(path) != expected.get(path)
    ]


def mixtures(found: Mapping[str, bytes], before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """What is neither as before nor as after the command; each file by itself, an artefact's folder as a whole."""
    problems = []
    found = visible(found)
    artefacts = {str(Path(path).parent) for path in {*before, *after} if Path(path).name == "artefact.json"}
    for folder in sorted(artefacts):
        now, old, new = (_below(state, folder) for state in (found, before, after))
        if now not in (old, new):
            problems.append(f"{folder} is neither as before nor as after: {'; '.join(differences(now, new))}")
    for path, content in found.items():
        if content in (before.get(path), after.get(path)) or any(path.startswith(f"{folder}/") for folder in artefacts):
            continue
        if path not in before and path not in after:
            problems.append(f"{path} is new, and no part of the result")
        elif not path.endswith(_GROWING) or not _whole(path, content):
            problems.append(f"{path} is neither as before nor as after")
    problems += [f"{path} is lost" for path in before if path not in found and path in after and not _hidden(path)]
    return problems


def _below(state: Mapping[str, bytes], folder: str) -> State:
    return {path: content for path, content in state.items() if path == folder or path.startswith(f"{folder}/")}


def _whole(path: str, content: bytes) -> bool:
    content = content.split(b" ", 1)[1]
    if path.endswith(".safetensors"):
        return content.startswith(b"[{")  # its header could be read
    try:
        for line in content.splitlines():
            json.loads(line)
    except ValueError:
        return False
    return True

"""Whether what was written is still as it was written: runs, artefacts, mappings, exports, shards, checkpoints, caches."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from reprogram.answers.manifest import KIND, MANIFEST, read_manifest
from reprogram.data.cache import check_cached
from reprogram.errors import ReprogramError
from reprogram.files import (
    is_leftover,
    parse_sealed,
    read_bytes,
    read_json,
    read_sealed,
    read_tensors,
    settle_folder,
    sha256,
)
from reprogram.files.foreign import expanded
from reprogram.files.listings import EXPORTED, check_listed, read_listing
from reprogram.files.reading import AGAIN
from reprogram.files.seals import KEY, is_sealed_page, tensor_digest
from reprogram.mappings.artefact import (
    FILES,
    artefact_folder,
    described_mapping,
    fill_mapping,
    read_artefact,
)
from reprogram.mappings.stored_certainty import read_certainty, without_certainty
from reprogram.run.config import REFERENCE
from reprogram.run.folder import FIRST, SEEN, WEIGHTS, read_seen, stored_config
from reprogram.run.history import HISTORY, read_history
from reprogram.text import finite
from reprogram.training.checkpoint import Record, part, read_checkpoint

_PAGE = "report.html"
_CACHED = re.compile(r"[0-9a-f]{40}\.(npy|json)")


@dataclass(frozen=True)
class Checked:
    """A file or folder that was looked at.

    Attributes:
        path: which.
        what: what it is.
        problem: what is wrong with it; None if nothing is.
    """

    path: Path
    what: str
    problem: str | None


def verify(path: str | Path) -> list[Checked]:
    """Check everything that we write against the SHA-256 that it carries, and whether its parts fit together.

    A seal tells of damage and of editing; it is no signature. Neither the frozen model nor the images are looked at.

    Args:
        path: a run folder or a folder of them, an artefact or a mapping, an export, a folder of shards, a cache folder, or
            one of the files in those.

    Raises:
        ReprogramError: there is nothing of ours.
    """
    place = expanded(path)
    settle_folder(place)
    if not place.exists():
        raise ReprogramError(f"{str(place)!r} does not exist; give a run, a mapping, an export, shards, a cache, or a file")
    found = list(_of_folder(place) if place.is_dir() else _of_file(place))
    if not found:
        raise ReprogramError(
            f"{str(place)!r} holds nothing that reprogram writes and can check; give a run, a mapping, an export, shards "
            "or a cache"
        )
    return found


def _continue(folder: Path) -> str:
    """What to do about a part of a run that its checkpoint can make again."""
    verb = f"reference {name}" if (name := _reference(folder)) is not None else "fit"
    return f"continue the run with reprogram {verb} --resume --out {shlex.quote(str(folder))}, or take it from a backup"


def _reference(folder: Path) -> str | None:
    """Which reference method a run folder holds, if one; whether its settings are damaged is checked elsewhere."""
    try:
        content = read_json(folder / "config.json", "file") if (folder / "config.json").is_file() else None
    except ReprogramError:
        return None
    found = content.get(REFERENCE) if isinstance(content, dict) else None
    return found if isinstance(found, str) else None


def _check(path: Path, what: str, look: Callable[..., Any], *given: Any) -> Checked:
    try:
        look(*given)
    except ReprogramError as error:
        told = str(error)
        return Checked(path, what, told if path.name in told else f"{str(path)!r} cannot be used: {told}")
    except OSError as error:
        return Checked(path, what, f"{str(path)!r} cannot be read ({error.strerror}); check its permissions")
    return Checked(path, what, None)


def _of_folder(folder: Path) -> Iterator[Checked]:
    settle_folder(folder / "artefact")
    if (folder / FILES[0]).exists() or (folder / FILES[1]).exists():
        yield from _of_artefact(folder)
    elif (folder / "config.json").exists() or (folder / "checkpoint").is_dir() or (folder / "artefact").is_dir():
        yield from _of_run(folder)
    elif (folder / MANIFEST).exists():
        yield from _of_shards(folder)
    elif (folder / EXPORTED).exists():
        yield from _of_export(folder)
    else:
        for entry in sorted(folder.iterdir()):
            if entry.is_file() and (_CACHED.fullmatch(entry.name) or entry.suffix == ".safetensors"):
                yield from _of_file(entry)
            elif entry.is_dir() and not entry.is_symlink() and not is_leftover(entry):
                yield from _of_folder(entry)


def _of_artefact(folder: Path) -> Iterator[Checked]:
    contents: list[dict[str, Any]] = []

    def look() -> None:
        content, tensors = read_artefact(artefact_folder(folder))
        if not content["spanned"]:
            mapping = described_mapping(content)
            own = {key: value for key, value in tensors.items() if key.startswith("mapping.")}
            fill_mapping(mapping, own, folder)
            read_certainty(content, tensors, mapping, folder)
        contents.append(content)

    yield _check(folder, "artefact", look)
    for content in contents:
        digest = content["files"].get(FILES[2])
        yield _check(folder / FILES[2], "table of labels", _digest, folder / FILES[2], digest, AGAIN)


def _of_run(folder: Path) -> Iterator[Checked]:
    yield _check(folder / "config.json", "settings", stored_config, folder)
    for name in ("environment.json", "selection.json", FIRST):
        if (folder / name).exists():
            yield _check(folder / name, "facts", _fact, folder / name)
    if (folder / SEEN).exists():
        yield _check(folder / SEEN, "list of images", read_seen, folder / SEEN)
    if (folder / HISTORY).exists():
        yield _check(folder / HISTORY, "program history", read_history, folder / HISTORY)
    checkpoint = folder / "checkpoint" / "state.safetensors"
    if checkpoint.exists():
        yield _check(checkpoint, "checkpoint", read_checkpoint, checkpoint)
    if (folder / "metrics.jsonl").exists():
        yield _check(folder / "metrics.jsonl", "epochs", _metrics, folder / "metrics.jsonl")
    result = folder / "result.json"
    artefact, what = (folder / WEIGHTS, "weights") if _reference(folder) is not None else (folder / "artefact", "artefact")
    if artefact.is_dir():
        yield from _of_artefact(artefact)
    elif artefact.exists():
        yield _check(artefact, what, _tensors, artefact)
    elif result.exists():
        yield Checked(artefact, what, f"{str(artefact)!r} is missing; {_continue(folder)}")
    if artefact.exists() and checkpoint.exists():
        yield _check(folder, "parts together", _together, folder, checkpoint)
    if result.exists():
        told = _check(result, "result", _result, folder)
        yield told
        if told.problem is None:
            yield _check(folder / "predictions.csv", "predictions", _predictions, folder)
    elif artefact.exists():
        yield Checked(result, "result", f"{str(result)!r} is missing; {_continue(folder)}")
    if (folder / _PAGE).exists():
        yield _check(folder / _PAGE, "report", _page, folder / _PAGE)


def _together(folder: Path, checkpoint: Path) -> None:
    """The epochs are those of the checkpoint, and the model is the one that was chosen there, unless it was updated."""
    tensors, header = read_checkpoint(checkpoint)
    text = read_bytes(folder / "metrics.jsonl", "file").decode("utf-8", "surrogateescape")
    epochs = [parse_sealed(f"{line}\n", "line", remedy=_continue(folder)) for line in text.splitlines()]
    chosen = {tensor_digest(part(tensors, "selected"), "null")}
    if _reference(folder) is not None:
        artefact, updated = folder / WEIGHTS, False
        made = {read_tensors(artefact, "weights")[1].get("state")}
    else:
        artefact = folder / "artefact"
        described, held = read_artefact(artefact)
        updated = bool(described.get("updates"))
        made = {tensor_digest(without_certainty(held), "null"), described["files"].get(FILES[1])}
    if epochs and epochs[0]["epoch"] == 0:  # of a run that tries a program, which may stay without it
        epochs = epochs[1:]
        chosen.add(str(read_sealed(folder / FIRST, "file", remedy=_continue(folder)).get("digest")))
    settings = stored_config(folder).training().model_dump(mode="json", exclude={"epochs", "minutes", "calibration"})
    if settings["precision"] == "auto":
        del settings["precision"]  # the checkpoint says what that was on its device
    differing = [
        name
        for name, differs in (
            ("metrics.jsonl", epochs != finite(header["records"])),
            (artefact.name, not updated and chosen.isdisjoint(made)),
            ("config.json", settings.items() - header["origin"]["settings"].items()),
        )
        if differs
    ]
    if differing:
        raise ReprogramError(
            f"{str(folder / differing[0])!r} is of another run than the checkpoint, or the run was stopped on its way; "
            f"{_continue(folder)}"
        )


def _fact(path: Path) -> None:
    read_sealed(path, "file", remedy=_continue(path.parent))


def _page(path: Path) -> None:
    if not is_sealed_page(read_bytes(path, "report", most=2**30).decode("utf-8", "surrogateescape")):
        raise ReprogramError(
            f"report {str(path)!r} has changed since it was written (its SHA-256 differs); make it again with reprogram "
            "report"
        )


def _tensors(path: Path) -> None:
    read_tensors(path, "file")


def _metrics(path: Path) -> None:
    text, first = read_bytes(path, "file").decode("utf-8", "surrogateescape"), 1
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        record = parse_sealed(line, f"line {number} of {str(path)!r}", Record, remedy=_continue(path.parent))
        first = record["epoch"] if number == 1 else first
        if first > 1 or record["epoch"] != number - 1 + first:
            raise ReprogramError(
                f"line {number} of {str(path)!r} tells of epoch {record['epoch']}; {_continue(path.parent)}"
            )


class _Result(BaseModel):
    """What of a result is relied on here."""

    files: dict[str, str]
    epochs: int


def _result(folder: Path) -> None:
    content = read_sealed(folder / "result.json", "result", _Result, remedy=_continue(folder))
    metrics = folder / "metrics.jsonl"
    epochs = read_bytes(metrics, "file").count(b"\n") if metrics.exists() else 0
    if content["epochs"] != epochs:
        raise ReprogramError(
            f"{str(folder / 'result.json')!r} tells of {content['epochs']} epochs and {str(metrics)!r} of {epochs}, so the "
            f"run was stopped while it went on; {_continue(folder)}"
        )


def _predictions(folder: Path) -> None:
    content = read_sealed(folder / "result.json", "result", _Result, remedy=_continue(folder))
    for name, digest in content["files"].items():
        _digest(folder / Path(name).name, digest, _continue(folder))


def _digest(path: Path, expected: Any, remedy: str) -> None:
    if not path.is_file():
        raise ReprogramError(f"{str(path)!r} is missing; {remedy}")
    if sha256(path) != expected:
        raise ReprogramError(f"{str(path)!r} has changed since it was written (its SHA-256 differs); {remedy}")


def _of_shards(folder: Path) -> Iterator[Checked]:
    manifests: list[dict[str, Any]] = []

    def look() -> None:
        content = read_manifest(folder)
        if content is None:
            raise ReprogramError(f"{str(folder / MANIFEST)!r} is of another kind; give a folder that reprogram logits wrote")
        manifests.append(content)

    yield _check(folder / MANIFEST, "manifest", look)
    for content in manifests:
        for name, facts in content["shards"].items():
            yield _check(folder / name, "shard", _shard, folder / name, facts["sha256"])


def _of_export(folder: Path) -> Iterator[Checked]:
    listings: list[dict[str, Any]] = []
    yield _check(folder / EXPORTED, "export", lambda: listings.append(read_listing(folder)))
    for content in listings:
        for name, digest in content["files"].items():
            yield _check(folder / name, "exported file", check_listed, folder / name, digest)
        shared = content.get("backbone")
        if isinstance(shared, dict) and shared.get("path") not in content["files"]:
            place = folder / str(shared.get("path"))
            yield _check(place, "backbone", check_listed, place, str(shared.get("sha256")))


def _shard(path: Path, expected: str) -> None:
    if not path.is_file() or sha256(path) != expected:
        raise ReprogramError(
            f"shard {str(path)!r} is missing or has changed since it was written; write it again with the same reprogram "
            "logits command"
        )


def _of_file(path: Path) -> Iterator[Checked]:
    if _CACHED.fullmatch(path.name):
        yield _check(path, "cache", check_cached, path.parent, path.stem)
    elif path.name in FILES[:2]:
        yield from _of_artefact(path.parent)
    elif path.name == HISTORY:
        yield _check(path, "program history", read_history, path)
    elif path.suffix == ".safetensors":
        is_state = path.parent.name == "checkpoint"
        yield _check(path, "tensors", read_checkpoint if is_state else _tensors, path)
    elif path.name == "metrics.jsonl":
        yield _check(path, "epochs", _metrics, path)
    elif path.name == SEEN:
        yield _check(path, "list of images", read_seen, path)
    elif path.suffix == ".html":
        yield _check(path, "report", _page, path)
    elif path.name in ("predictions.csv", FILES[2]):
        yield from (checked for checked in _of_folder(path.parent) if checked.path.name in (path.name, "result.json"))
    elif (path.parent / MANIFEST).is_file():
        inside = list(_of_shards(path.parent))
        yield from (checked for checked in inside if checked.path.name in (path.name, MANIFEST))
    elif (path.parent / EXPORTED).is_file():
        inside = list(_of_export(path.parent))
        yield from (checked for checked in inside if checked.path.name in (path.name, EXPORTED))
    elif path.suffix == ".json" and _is_ours(path):
        yield _check(path, "file", _fact, path)


def _is_ours(path: Path) -> bool:
    if path.name in ("config.json", "environment.json", "selection.json", FIRST, "result.json"):
        return True
    content = read_json(path, "file")
    return isinstance(content, dict) and (KEY in content or content.get("kind") == KIND)

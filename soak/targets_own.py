"""Fuzz targets of what the library writes itself. Its seals are put on again for most inputs, or nothing else were tried."""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from reprogram.answers.fit import fit_files
from reprogram.answers.write import write_logits
from reprogram.cli.checks import check_fit
from reprogram.data.cache import _digests, _map, check_cached, decode_through
from reprogram.data.decode import Decoding
from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.files import (
    read_json,
    read_sealed,
    read_tensors,
    sealed_json,
    sealed_line,
    sealed_text,
    sha256,
    write_tensors,
)
from reprogram.mappings.artefact import load_mapping, save_mapping
from reprogram.programs.padding import Padding
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig
from reprogram.run.folder import read_seen, stored_config, write_seen
from reprogram.run.history import HISTORY, NO_HISTORY, read_history, write_history
from reprogram.run.verify import verify
from reprogram.training.checkpoint import read_checkpoint
from reprogram.training.loop import fit
from soak.material import estimated, images, logits, network
from soak.sealing import digest_of, reseal_json, reseal_lines, reseal_tensors, reseal_text
from soak.structure import JSON, NPY, SAFETENSORS, json_node
from soak.targets import FileTarget, FolderTarget, Target
from soak.targets_binary import warm_timm

_DESCRIPTION, _TENSORS = "artefact.json", "artefact.safetensors"
_TRAINING: dict[str, Any] = {"epochs": 1, "batch_size": 12}
_SIZE = 12
_STATE = "checkpoint/state.safetensors"


def _json_seeds(folder: Path) -> list[bytes]:
    contents = ({"a": [1, 2.5, None, True, "text"], "b": {"c": []}}, [["x", 1], ["y", -1e-3]], "é", 3)
    return [json.dumps(content, ensure_ascii=False).encode() for content in contents]


def _sealed_seeds(folder: Path) -> list[bytes]:
    return [sealed_json({"a": [1, 2.5, None, True, "é"], "b": {"c": []}}).encode(), sealed_json({}).encode()]


def _tensor_seeds(folder: Path) -> list[bytes]:
    path = folder / "good.safetensors"
    write_tensors(path, {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(2), "c": torch.zeros(0, 4)}, {"x": [1, "y"]})
    return [path.read_bytes()]


def _seen_seeds(folder: Path) -> list[bytes]:
    return [sealed_text(["0123456789abcdef" * 2, "fedcba9876543210" * 2]).encode(), sealed_text([]).encode()]


def _history_seeds(folder: Path) -> list[bytes]:
    path, program = folder / HISTORY, Padding(8, 4)
    write_history(path, NO_HISTORY.with_epoch(1, program).with_epoch(2, program))
    return [path.read_bytes()]


def _seal_file(name: str, data: bytes) -> bytes:
    if name.endswith(".safetensors"):
        return reseal_tensors(data)
    if name.endswith(".json"):
        return reseal_json(data)
    if name.endswith(".jsonl"):
        return reseal_lines(data)
    return reseal_text(data) if name.endswith(".txt") else data


def _settle_artefact(folder: Path, name: str) -> None:
    """Let the description of an artefact name the seal of its tensors, where these were damaged and sealed again."""
    digest = digest_of((folder / _TENSORS).read_bytes()) if name == _TENSORS else None
    if digest is not None:
        content = json.loads((folder / _DESCRIPTION).read_text())
        content["files"][_TENSORS] = digest
        del content["sha256"]
        (folder / _DESCRIPTION).write_text(sealed_json(content), errors="replace")


def _use_mapping(folder: Path) -> None:
    mapping, _ = load_mapping(folder)
    answers, _ = logits(4)
    if mapping.k_source == answers.shape[1]:
        mapping.predict(answers)
    mapping.explain(3)


def _mapping_target(name: str) -> Target:
    return FolderTarget(
        f"mapping.{name}",
        lambda folder: save_mapping(estimated(name), folder, {"note": "x"}),
        _use_mapping,
        files=(_DESCRIPTION, _TENSORS),
        seal=_seal_file,
        settle=_settle_artefact,
        mutators=(*SAFETENSORS, *JSON),
        weight=0.3,
    )


_network = cache(network)


def _make_artefact(folder: Path) -> None:
    Reprogrammed(Padding(24, _SIZE), _network(), estimated("blm+")).save(folder)


def _use_artefact(folder: Path) -> None:
    model = Reprogrammed.load(folder, frozen=_network())
    if model.program.canvas <= 64:
        model.predict(torch.zeros(1, 3, 8, 8))


def _make_named_artefact(folder: Path) -> None:
    from reprogram import load_frozen, make_mapping

    frozen = load_frozen("timm:test_resnet", pretrained=False)
    mapping = make_mapping("blm", frozen.labels, ("a", "b"))
    statistics = mapping.new_statistics()
    statistics.update(torch.eye(2, frozen.k_source), torch.arange(2))
    with ignore_evidence_warnings():
        mapping.estimate(statistics)
        Reprogrammed(Padding(64, 32), frozen, mapping).save(folder)


def _source_node(data: bytes, rng: Any, known: Any) -> bytes:
    """Damage what an artefact says about its program and its source model, and nothing else of it."""
    try:
        content = json.loads(data)
        part = rng.choice(("frozen", "frozen", "program"))
        changed = json_node(json.dumps(content[part]).encode(), rng, known)
        content[part] = json.loads(changed)
    except (ValueError, KeyError, TypeError, RecursionError):
        return data
    return json.dumps(content).encode()


def _make_checkpoint(folder: Path, name: str) -> None:
    fit(_trained(name), images(), checkpoint=folder / "state.safetensors", decoding=Decoding(cache=False), **_TRAINING)


def _trained(name: str) -> Reprogrammed:
    return Reprogrammed(Padding(24, _SIZE), _network(), estimated(name))


def _continue(folder: Path, name: str) -> None:
    settings = {**_TRAINING, "epochs": 1}
    fit(_trained(name), images(), checkpoint=folder / "state.safetensors", decoding=Decoding(cache=False), **settings)


def _checkpoint_target(name: str) -> Target:
    return FolderTarget(
        f"checkpoint.{name}",
        partial(_make_checkpoint, name=name),
        partial(_continue, name=name),
        seal=_seal_file,
        fresh=True,
        mutators=SAFETENSORS,
        weight=0.6,
    )


def _make_run(folder: Path, **training: Any) -> None:
    known = {"data": "digits", "mapping": "blm+", "model": "timm:test_resnet", "pretrained": False, "seed": 3}
    config = FitConfig.read({**known, **training})
    content = {**config.model_dump(), "given": config.given}
    (folder / "config.json").write_text(sealed_json(content))


def _use_run(folder: Path) -> None:
    check_fit({"out": str(folder), "resume": True})
    stored_config(folder)


def _config_seeds(folder: Path) -> list[bytes]:
    contents: list[dict[str, Any]] = [{"data": "digits", "epochs": 3, "mapping": "gaussian"}, {"given": {}}, {}]
    return [json.dumps(content).encode() for content in contents]


def _make_shards(folder: Path) -> None:
    model = Reprogrammed(Padding(24, _SIZE), _network(), estimated("blm+"))
    write_logits(model, images(), folder, shard_size=16, decoding=Decoding(cache=False))


def _use_shards(folder: Path) -> None:
    with ignore_evidence_warnings():
        fit_files(str(folder), "blm+")


def _make_cache(folder: Path) -> None:
    decode_through(folder, images().train, _SIZE, "bilinear", 1, Progress())


def _use_cache(folder: Path) -> None:
    for path in folder.glob("*.json"):
        decoded = check_cached(folder, path.stem)
        assert int(decoded.pixels.long().sum()) >= 0  # all of it is there


def _settle_cache(folder: Path, name: str) -> None:
    """Let the facts of a cache name the checksum of its damaged pixels."""
    if not name.endswith(".npy"):
        return
    try:
        file = (folder / name).with_suffix(".json")
        content = json.loads(file.read_text())
        digests = _digests(_map(folder / name, "c", tuple(content["shape"])))
    except Exception:  # any damage
        return
    content["pixels"] = digests
    del content["sha256"]
    file.write_text(sealed_json(content))


def _make_everything(folder: Path) -> None:
    """One of each that `reprogram verify` knows: a run, shards, a cache, a mapping."""
    run = folder / "run"
    for part in ("run/checkpoint", "shards", "cache"):
        (folder / part).mkdir(parents=True)
    result = fit(_trained("blm+"), images(), checkpoint=run / _STATE, decoding=Decoding(cache=False), **_TRAINING)
    result.model.save(run / "artefact")
    _make_run(run, **read_checkpoint(run / _STATE)[1]["origin"]["settings"])
    write_history(run / HISTORY, NO_HISTORY.with_epoch(1, Padding(8, 4)))
    write_seen(run, ["0123456789abcdef" * 2])
    (run / "metrics.jsonl").write_text("".join(map(sealed_line, result.records)))
    (run / "predictions.csv").write_text("image,label\n")
    files = {"predictions.csv": sha256(run / "predictions.csv")}
    (run / "result.json").write_text(sealed_json({"files": files, "epochs": len(result.records)}))
    _make_shards(folder / "shards")
    _make_cache(folder / "cache")
    save_mapping(estimated("gaussian"), folder / "mapping", {})


def _verify(folder: Path) -> None:
    for checked in verify(folder):
        if checked.problem is not None:
            raise ReprogramError(checked.problem)


def _read(what: str, read: Callable[[Path, str], Any]) -> Callable[[Path], Any]:
    return lambda path: read(path, what)


TARGETS: list[Target] = [
    FileTarget("own.json", _json_seeds, _read("file", read_json), file="file.json", mutators=JSON),
    FileTarget("own.sealed", _sealed_seeds, _read("file", read_sealed), file="f.json", seal=reseal_json, mutators=JSON),
    FileTarget("own.tensors", _tensor_seeds, _read("tensors", read_tensors), seal=reseal_tensors, mutators=SAFETENSORS),
    FileTarget("own.images.txt", _seen_seeds, read_seen, file="images.txt", seal=reseal_text, mutators=JSON),
    FileTarget("own.history", _history_seeds, read_history, file=HISTORY, seal=reseal_tensors, mutators=SAFETENSORS),
    *(_mapping_target(name) for name in ("blm+", "ilm", "rlm", "gaussian", "linear", "sigmoid")),
    FolderTarget(
        "artefact",
        _make_artefact,
        _use_artefact,
        files=(_DESCRIPTION, _TENSORS),
        seal=_seal_file,
        settle=_settle_artefact,
        mutators=(*SAFETENSORS, *JSON),
    ),
    FolderTarget(
        "artefact.source",
        _make_named_artefact,
        lambda folder: Reprogrammed.load(folder),
        files=(_DESCRIPTION,),
        seal=_seal_file,
        mutators=(_source_node,),
        warm=warm_timm,
        slow=True,
    ),
    *(_checkpoint_target(name) for name in ("blm+", "linear")),
    FolderTarget("run.config", _make_run, _use_run, seal=_seal_file, mutators=JSON),
    FileTarget(
        "run.settings", _config_seeds, lambda path: check_fit({"config": str(path)}), file="settings.json", mutators=JSON
    ),
    FolderTarget("manifest", _make_shards, _use_shards, files=("manifest.json",), seal=_seal_file, mutators=JSON),
    FolderTarget("cache", _make_cache, _use_cache, seal=_seal_file, settle=_settle_cache, mutators=(*NPY, *JSON)),
    FolderTarget("verify", _make_everything, _verify, seal=_seal_file, mutators=(*SAFETENSORS, *JSON, *JSON)),
]

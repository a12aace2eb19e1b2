"""Images → shards of source logits: what a frozen model answers, written once, resumable, for mappings without images."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from reprogram.acceleration.accelerate import accelerate, worth_preparing
from reprogram.answers.manifest import FORMAT, KIND, MANIFEST, read_manifest
from reprogram.data.cache import decode_in_memory
from reprogram.data.dataset import DataSet, Split, bad_images
from reprogram.data.decode import Decoding
from reprogram.errors import ReprogramError, extra_missing
from reprogram.files import claimed_folder, is_leftover, locked, remove_leftovers, sha256, write_file, write_sealed
from reprogram.programs.base import NoProgram, Program
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen

Format = Literal["npz", "parquet"]
_PARTS = ("train", "val", "test")


def write_logits(
    model: Reprogrammed | Frozen,
    data: DataSet,
    folder: Path,
    *,
    split: str = "all",
    form: Format = "npz",
    shard_size: int = 4096,
    batch_size: int = 64,
    decoding: Decoding | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Pass the images of a data set through a frozen model and write its logits as shards.

    A shard is there as a whole or not at all, and `manifest.json` tells which there are. The same call on the same folder
    keeps the shards whose bytes are as written and makes the others, so it continues after a kill.

    Args:
        model: a frozen model under a program, whose mapping does not matter here; or a frozen model by itself.
        data: the labelled images.
        folder: where the shards go.
        split: train, val, test or all.
        form: npz or parquet.
        shard_size: rows per shard.
        batch_size: images per step.
        decoding: with a cache or, by default, shard by shard; and what becomes of images that cannot be decoded.
        progress: where to show progress.

    Returns:
        The manifest.
    """
    progress, decoding = progress or Progress(), decoding or Decoding(cache=False)
    asked = _Asked.of(model)
    parts = _parts(data, split)
    if folder.exists() and not folder.is_dir():
        raise ReprogramError(f"{str(folder)!r} is a file, but a folder for shards is expected; choose another --out")
    whole = parts
    if decoding.cache:
        # the places of bad images are part of the cache, so the same ones are left out each time
        sizes = dict.fromkeys(parts, asked.program.image_size)
        decoded, _ = decoding.decode(data, sizes, asked.program.interpolation, progress)
        parts = _parts(decoded, split)
    manifest = _identity(asked, data, whole, form, shard_size, decoding.skip_bad)
    _earlier(folder, manifest)  # what is there is ours, or stays untouched
    with (
        claimed_folder(folder),
        locked(folder / ".lock", f"the folder {str(folder)!r}", remedy=", or choose another --out"),
    ):
        before = _earlier(folder, manifest)
        remove_leftovers(folder)
        manifest["shards"] = {
            name: facts
            for name, facts in before.items()
            if (folder / name).is_file() and sha256(folder / name) == facts["sha256"]
        }
        names = [
            (f"{part}-{number:05}.{form}", part, range(start, min(start + shard_size, len(images))))
            for part, images in parts.items()
            for number, start in enumerate(range(0, len(images), shard_size))
        ]
        if manifest["shards"]:
            progress.say(f"{len(manifest['shards'])} of {len(names)} shards are there already")
        if len(manifest["shards"]) < len(names):
            # for all images, whatever is left of them: a continued call computes as an undisturbed one does
            asked = asked.prepared(sum(map(len, parts.values())))
        for number, (name, part, places) in enumerate(names, start=1):
            if name in manifest["shards"]:
                continue
            what = f"{name} ({number} of {len(names)})"
            columns = asked.answers(data.classes, parts[part], places, batch_size, decoding, progress, what)
            columns["split"] = [part] * len(columns["label"])
            if not (folder / MANIFEST).exists():  # by it the folder is known as ours, if the first shard is never finished
                write_sealed(folder / MANIFEST, manifest)
            write_shard(folder / name, columns)
            manifest["shards"][name] = {"rows": len(columns["label"]), "sha256": sha256(folder / name)}
            planned = {name: manifest["shards"].get(name) for name, _, _ in names}
            manifest["shards"] = {name: facts for name, facts in planned.items() if facts is not None}
            write_sealed(folder / MANIFEST, manifest)
    return manifest


def write_shard(path: Path, columns: dict[str, Any]) -> None:
    """Write one shard in one step: `logits` as an array (N, k_S), every other column as a list of texts."""
    texts = {
        name: [text.encode(errors="surrogateescape").decode(errors="replace") for text in values]
        for name, values in columns.items()
        if name != "logits"
    }
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {name: np.array(values, dtype=str) for name, values in texts.items()}

        def write_npz(temporary: Path) -> None:
            with temporary.open("wb") as file:  # by a name, numpy would add a suffix of its own
                np.savez(file, logits=columns["logits"], **arrays)

        write_file(path, write_npz)
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", f"shard {str(path)!r}") from None
    logits = columns["logits"]
    table = {"logits": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(logits.ravel()), logits.shape[1]), **texts}
    # small row groups, because a reader holds one of them in memory
    write_file(path, lambda temporary: pyarrow.parquet.write_table(pyarrow.table(table), temporary, row_group_size=1024))


def _parts(data: DataSet, split: str) -> dict[str, Split]:
    if split not in (*_PARTS, "all"):
        raise ReprogramError(f"split {split!r} was given, but train, val, test or all is expected")
    found = {name: images for name in _PARTS if split in (name, "all") and (images := getattr(data, name)) is not None}
    if not found:
        raise ReprogramError(f"data {data.name!r} has no {split} split; choose another one with --split")
    return found


def _identity(
    asked: "_Asked", data: DataSet, parts: dict[str, Split], form: str, shard_size: int, skip_bad: bool
) -> dict[str, Any]:
    """Everything that the content of the shards depends on."""
    program, frozen = asked.program, asked.frozen
    digest = hashlib.sha256()
    for name, images in parts.items():
        for image, label, fingerprint in zip(images.names, images.labels.tolist(), images.fingerprints(), strict=True):
            line = f"{name}\t{image}\t{label}\t{fingerprint}\n"
            digest.update(line.encode(errors="surrogateescape"))
        if images.groups is not None:
            digest.update("\t".join(images.groups).encode(errors="surrogateescape"))
    theta = hashlib.sha256(repr(program.config()).encode())
    for parameter in program.parameters():
        theta.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return {
        "format": FORMAT,
        "kind": KIND,
        "model": frozen.name,
        "fingerprint": frozen.fingerprint,
        "program": program.config(),
        "program_sha256": theta.hexdigest(),
        "data": data.name,
        "data_sha256": digest.hexdigest(),
        "splits": {name: len(images) for name, images in parts.items()},
        "shard_format": form,
        "shard_size": shard_size,
        "skip_bad": skip_bad,
        "classes": list(data.classes),
        "source_labels": list(frozen.labels),
        "log_probabilities": frozen.log_probabilities,
        "shards": {},
    }


def _earlier(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The shards of an earlier call, if that was the same one."""
    if not (folder / MANIFEST).is_file():
        if folder.is_dir() and not all(map(is_leftover, folder.iterdir())):
            raise ReprogramError(f"{str(folder)!r} is not empty and holds no {MANIFEST}; choose another --out")
        return {}
    stored = read_manifest(folder, "choose another --out, or remove the folder")
    if stored is None:
        raise ReprogramError(f"{str(folder)!r} holds a {MANIFEST} of another kind; choose another --out")
    for name, value in sorted(manifest.items(), key=lambda part: part[0] == "data_sha256"):  # which other splits change, too
        if name != "shards" and stored.get(name) != value:
            raise ReprogramError(
                f"the shards in {str(folder)!r} were made with another {name.removesuffix('_sha256').replace('_', ' ')}; "
                "continue them as they were begun, or choose another --out"
            )
    return dict(stored["shards"])


@dataclass(frozen=True)
class _Asked:
    """What the images are sent through."""

    program: Program
    frozen: Frozen
    source_logits: Callable[[Tensor], Tensor]
    whole: Reprogrammed | None = None

    @classmethod
    def of(cls, model: Reprogrammed | Frozen) -> "_Asked":
        if isinstance(model, Reprogrammed):
            return cls(model.program, model.frozen, model.source_logits, model)
        program = NoProgram(model.input_size, model.program_interpolation).to(model.mean.device).bind(model.mean, model.std)
        return cls(program, model, lambda images: model(program(images.to(model.mean.device))))

    def prepared(self, passes: int) -> "_Asked":
        """The same, prepared for so many images if they repay it."""
        if self.whole is not None:
            self.whole.accelerate(passes)
        elif worth_preparing(passes, self.program):
            network = accelerate(self.frozen, self.program)
            return replace(self, source_logits=lambda images: network(images.to(self.frozen.mean.device)))
        return self

    @torch.no_grad()
    def answers(
        self,
        classes: tuple[str, ...],
        images: Split,
        places: range,
        batch_size: int,
        decoding: Decoding,
        progress: Progress,
        what: str,
    ) -> dict[str, Any]:
        """The columns of one shard."""
        program, part = self.program, images.subset(torch.tensor(places))
        if images.is_decoded(program.image_size, program.interpolation):
            pixels = images.pixels(program.image_size, program.interpolation)[places.start : places.stop]
        else:
            decoded = decode_in_memory(part, program.image_size, program.interpolation, Progress())
            if decoded.failures and not decoding.skip_bad:
                raise bad_images(list(decoded.failures.values()), [part.names[place] for place in decoded.failures])
            good = [place for place in range(len(part)) if place not in decoded.failures]  # none, perhaps: a shard is small
            part, pixels = part.subset(torch.tensor(good, dtype=torch.int64)), decoded.pixels[good]
        batches = list(pixels.split(batch_size)) if len(pixels) else []
        answers = [self.source_logits(batch).float().cpu().numpy() for batch in progress.track(batches, what)]
        return {
            "logits": np.concatenate(answers) if answers else np.zeros((0, self.frozen.k_source), np.float32),
            "label": [classes[label] for label in part.labels.tolist()],
            "image": part.names,
            **({} if part.groups is None else {"group": part.groups}),
        }

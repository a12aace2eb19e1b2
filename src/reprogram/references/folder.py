"""`run_reference`: a reference method as a run folder, beside those of `reprogram fit`."""

import time
from pathlib import Path
from typing import Any

from typing_extensions import override

from reprogram.data.dataset import DataSet
from reprogram.devices import choose_device
from reprogram.errors import ReprogramError
from reprogram.files import claimed_folder, remove_leftovers, write_sealed, write_tensors
from reprogram.files.seals import tensor_digest
from reprogram.progress import Progress
from reprogram.randomness import derived_seed
from reprogram.references.defaults import FOREIGN, resolve_reference, shared_config
from reprogram.references.models import ReferenceModel
from reprogram.references.registry import REFERENCES, Reference
from reprogram.references.settings import ReferenceSettings
from reprogram.run.build import (
    Prepared,
    configured_data,
    configured_frozen,
    decoding_of,
    divided_data,
    known_facts,
    with_chosen_precision,
)
from reprogram.run.config import GIVEN, REFERENCE, REFERENCE_SETTINGS, FitConfig
from reprogram.run.folder import WEIGHTS, FolderBook, continued_run, fill_folder, locked_run, stored_reference
from reprogram.run.steps import trainable
from reprogram.settings import spelling
from reprogram.training.result import FitResult
from reprogram.training.state import pixel_sizes


def run_reference(
    name: str,
    config: FitConfig,
    folder: Path,
    *,
    data: DataSet | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> FitResult:
    """Carry out a reference method and fill a run folder with what `run_fit` writes, but with weights for an artefact.

    What is wrong with the configuration, the data or the model leaves no folder behind. After a kill or an interrupt, the
    same call with `resume=True` ends with the same numbers as an undisturbed run.

    Args:
        name: of `REFERENCES`: probe, finetune-linear, finetune-full.
        config: as for `run_fit`; program and mapping are left out. It is stored with all defaults filled in.
        folder: the run folder. `weights.safetensors` there holds what was learned; see `ReferenceModel.weights`.
        data: the data set, where the configuration does not name one that can be loaded.
        resume: continue the run in the folder, if there is one.
        progress: where to show progress.
        settings: the method's own, `REFERENCES[name].settings`.

    Returns:
        The result; its `model` is a `ReferenceModel`.
    """
    reference = REFERENCES[name]
    checked = REFERENCES.read(name, settings)
    progress = progress or Progress()
    folder = folder.expanduser()
    config = shared_config(name, config)
    continued_run(config, folder, resume, name)  # what stands there is ours, or stays untouched
    with claimed_folder(folder), locked_run(folder):
        config, given = continued_run(config, folder, resume, name)
        remove_leftovers(folder)
        checked, own = _continued_settings(reference, checked, settings, folder)
        prepared = _prepare(reference, config, data, progress)
        book = _Book(folder, given, reference, checked, own)
        progress.say(_describe(reference, prepared))

        def work(ready: Prepared) -> FitResult:
            found: FitResult = reference.load()(ready, checked, book, progress)
            return found

        return fill_folder(prepared, book, progress, work, book.keep)


class _Book(FolderBook):
    """The folder of a reference."""

    def __init__(
        self, folder: Path, given: dict[str, Any], reference: Reference, settings: ReferenceSettings, own: dict[str, Any]
    ) -> None:
        super().__init__(folder, given)
        self.reference, self.settings = reference, settings
        self.own = {**given.get(REFERENCE_SETTINGS, {}), **own}

    @override
    def write_config(self, config: FitConfig) -> None:
        decided = {name: value for name, value in config.model_dump().items() if name not in FOREIGN}
        own = {REFERENCE: self.reference.name, REFERENCE_SETTINGS: self.settings.model_dump()}
        write_sealed(self.folder / "config.json", {**decided, **own, GIVEN: {**self.given, REFERENCE_SETTINGS: self.own}})

    def keep(self, result: FitResult) -> dict[str, Any]:
        """Write what was learned; what a result tells of the source model is that of the whole one."""
        model = result.model
        assert isinstance(model, ReferenceModel)
        state = {key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()}
        header = {
            REFERENCE: self.reference.name,
            "classes": list(model.classes),
            "layer": model.layer,
            "source": {**model.source.spec, "fingerprint": model.source.fingerprint},
            "state": tensor_digest(state, "null"),
        }
        write_tensors(self.folder / WEIGHTS, model.weights(), header)
        frozen = 0 if model.whole else model.frozen.parameter_count
        return {
            REFERENCE: self.reference.name,
            "labels": {"source": model.source.k_source, "target": len(model.classes)},
            "parameters": {"free": trainable(model), "frozen": frozen},
            "source_fingerprint": model.source.fingerprint,
        }


def _continued_settings(
    reference: Reference, checked: ReferenceSettings, given: dict[str, Any], folder: Path
) -> tuple[ReferenceSettings, dict[str, Any]]:
    """The method's settings, and what of them was given: those of the run that is there, or those of a new one."""
    said = {name: getattr(checked, name) for name, value in given.items() if value is not None}
    found = stored_reference(folder) if (folder / "config.json").exists() else None
    if found is None:
        return checked, said
    before = reference.settings.read(found[1])
    for name, value in said.items():
        if value != getattr(before, name):
            raise ReprogramError(
                f"{spelling()(name, value)} was given, but the run in {str(folder)!r} has {getattr(before, name)}; "
                "resume it as it was, or choose another --out"
            )
    return before, said


def _prepare(reference: Reference, config: FitConfig, data: DataSet | None, progress: Progress) -> Prepared:
    """Load, decide and build; whatever is wrong with configuration, data or model is found here."""
    started = time.monotonic()
    data = data if data is not None else configured_data(config)
    source = configured_frozen(config, data, progress)
    config = resolve_reference(reference.name, config, known_facts(source, data))
    data = divided_data(config, data)
    source.to(choose_device(config.device))
    seed = derived_seed(config.seed, "mapping")  # the new layer begins where the mapping `linear` would
    model = ReferenceModel(source, data.classes, config.canvas, whole=reference.source, seed=seed)
    model.to(choose_device(config.device))
    model.check_canvas()
    config = with_chosen_precision(config, model, progress)
    sizes = pixel_sizes(model.program, config.augment)
    data, skipped = decoding_of(config).decode(data, sizes, model.program.interpolation, progress)
    return Prepared(config, data, model, tuple(skipped), started=started)


def _describe(reference: Reference, prepared: Prepared) -> str:
    """What is trained, in one line."""
    model, data = prepared.model, prepared.data
    assert isinstance(model, ReferenceModel)
    frozen = 0 if model.whole else model.frozen.parameter_count
    val = f" / {len(data.val)} val" if data.val is not None else ""
    return (
        f"{reference.name} of {model.source.name} on {data.name} ({data.k_target} classes, {len(data.train)} train{val} / "
        f"{len(data.test)} test images), canvas {model.program.canvas}, on {model.device}: {trainable(model):,} trainable "
        f"and {frozen:,} frozen parameters"
    )

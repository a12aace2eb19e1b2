"""A configuration becomes data, a frozen model and a `Reprogrammed`; `fit_data` does all of it and trains."""

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reprogram.data.dataset import DataSet
from reprogram.data.decode import Decoding
from reprogram.data.load import load_data
from reprogram.devices import at_hand, choose_device
from reprogram.errors import ReprogramError
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.mappings.scorers import Candidate
from reprogram.mappings.selection import Selection
from reprogram.programs.base import make_program
from reprogram.programs.registry import PROGRAMS
from reprogram.progress import Progress
from reprogram.randomness import derived_seed
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve, with_mapping, without_program
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen
from reprogram.sources.memory import PassMemory
from reprogram.sources.registry import find_source
from reprogram.threads import granted_cpus
from reprogram.training.choice import select_from
from reprogram.training.kept import KeptLogits, conditions, keep_logits
from reprogram.training.state import pixel_sizes
from reprogram.training.views import check_views

#: What a configuration names where the data were handed over as objects.
IN_MEMORY = "in memory"
#: What a model has until a mapping was chosen for it.
_BEFORE_THE_CHOICE = "blm+"


@dataclass(frozen=True)
class Prepared:
    """A run that can begin.

    Attributes:
        config: everything decided.
        data: decoded, with its validation split.
        model: the classifier, untrained.
        skipped: what was wrong with each image that was left out.
        selection: how the mapping was chosen, if it was.
        ranks: the processes that carry it out.
        known: the logits of the training images that a pass before has given, if any.
        started: when, in seconds of `time.monotonic`.
    """

    config: FitConfig
    data: DataSet
    model: Reprogrammed
    skipped: tuple[str, ...]
    selection: Selection | None = None
    ranks: Ranks = ALONE
    known: KeptLogits | None = None
    started: float = field(default_factory=time.monotonic)


def prepare(
    config: FitConfig,
    data: DataSet | None = None,
    progress: Progress | None = None,
    memory: Path | None = None,
    ranks: Ranks = ALONE,
) -> Prepared:
    """Load, decide and build; whatever is wrong with configuration, data or model is found here.

    Args:
        config: what was given.
        data: the data set, if it is at hand.
        progress: where to show progress.
        memory: a folder by which runs share what the frozen model says under untrained programs; see `PassMemory`.
        ranks: the processes that carry the run out.
    """
    started = time.monotonic()
    with ranks.in_turn() if config.download else nullcontext():  # one fetches, and the others find it there
        data = data if data is not None else configured_data(config)
    frozen = configured_frozen(config, data, progress)
    if memory is not None:
        frozen.memory = PassMemory(memory, f"{frozen.fingerprint} {'probabilities' if frozen.log_probabilities else ''}")
    config = resolve(config, known_facts(frozen, data))
    if config.program == AUTO and config.mapping != AUTO and MAPPINGS[config.mapping].load().learned:
        config = without_program(config)  # it is trained itself, for many epochs: there is no first answer to improve on
    data = divided_data(config, data)
    model = build(config, frozen, data)
    if AUTO not in (config.program, config.mapping):  # else another one is chosen, or none is trained
        model.check_gradient()
    config = with_chosen_precision(config, model, progress)
    sizes = pixel_sizes(model.program, config.augment)
    data, skipped = decoding_of(config, ranks).decode(data, sizes, model.program.interpolation, progress)
    if ranks.size > 1:
        ranks.agree({"data": data.digest(), "source model": frozen.fingerprint})
    return Prepared(config, data, model, tuple(skipped), ranks=ranks, started=started)


def with_chosen_mapping(prepared: Prepared, progress: Progress) -> Prepared:
    """For mapping `auto`, choose it now, by the logits under the untrained program; the configuration then names it."""
    config = prepared.config
    if config.mapping != AUTO:
        return prepared
    model, train = prepared.model, prepared.data.train
    how: dict[str, Any] = {"batch_size": config.batch_size, "precision": config.precision}
    how["pixels"] = pixel_sizes(model.program, config.augment)["train"]  # as where the first mapping is estimated
    known = prepared.known
    model.accelerate(len(train))
    if known is None or not known.serves(conditions(model, train, **how)):
        if known is not None:
            known.drop()
        known = keep_logits(model, train, **how, progress=progress, what="choosing the mapping", ranks=prepared.ranks)
    selection = select_from(known.blocks, model, len(train), ranks=prepared.ranks)
    if model.moves and not _can_train(selection.choice):
        rows = [row for row in selection.table if _can_train(row.candidate)]
        selection = replace(selection, table=rows, runner_up=None, lead=None)
    config = with_mapping(config, selection.choice.mapping, selection.choice.settings)
    model = build(config, model.frozen, prepared.data)
    return replace(prepared, config=config, model=model, selection=selection, known=known)


def _can_train(candidate: Candidate) -> bool:
    """Whether a program can be trained through this mapping."""
    return bool(MAPPINGS.read(candidate.mapping, candidate.settings).smooth)


def configured_data(config: FitConfig) -> DataSet:
    """The data set as it is on disk."""
    if config.data == IN_MEMORY:
        raise ReprogramError(
            "the data of this run were given from Python and cannot be loaded again; name others with --data"
        )
    return load_data(
        config.data,
        split_seed=config.split_seed,
        root=config.data_root,
        download=config.download,
        group=config.group,
    )


def divided_data(config: FitConfig, data: DataSet) -> DataSet:
    """The data set with a validation split and as few training images as were asked for."""
    data = data.with_validation(config.val_fraction, config.split_seed)
    # of 0 shots one image of each class stays, as a split has some, but none is counted
    data = data.with_fewer(shots=1 if config.shots == 0 else config.shots, fraction=config.fraction, seed=config.seed)
    if config.shots == 0:
        data = replace(data, notes=(*data.notes, "0 shots: no training image was counted, the mapping is the prior"))
    return data


def configured_frozen(config: FitConfig, data: DataSet, progress: Progress | None = None) -> Frozen:
    """The frozen model; one that compares images with texts has texts about the classes of the data."""
    return load_frozen(
        config.model,
        pretrained=config.pretrained,
        weights=config.weights,
        seed=derived_seed(config.seed, "weights"),
        classes=data.classes if find_source(config.model)[0].kind.needs_classes else None,
        progress=progress,
        **config.options("source"),
    )


def known_facts(frozen: Frozen, data: DataSet) -> Facts:
    """What defaults depend on, read off a model and its data."""
    return Facts(
        input_size=frozen.input_size,
        default_program=frozen.default_program,
        frame=frozen.kind.default_frame,
        paper_training=frozen.paper_training,
        native_size=data.train.native_size(),
        published_size=data.image_size,
        published_batch=data.batch_size,
        flip_safe=data.flip_safe,
    )


def decoding_of(config: FitConfig, ranks: Ranks = ALONE) -> Decoding:
    """How the images of this run are decoded."""
    return Decoding(cache=config.cache, skip_bad=config.skip_bad, processes=granted_cpus(), ranks=ranks)


def configured_mapping(config: FitConfig, frozen: Frozen, data: DataSet) -> Mapping:
    """The mapping, before anything was counted."""
    name, settings = (_BEFORE_THE_CHOICE, {}) if config.mapping == AUTO else (config.mapping, config.options("mapping"))
    mapping = make_mapping(
        name,
        frozen.labels,
        data.classes,
        seed=derived_seed(config.seed, "mapping"),
        span=frozen.span,
        weighted=config.views > 1,
        **settings,
    )
    if config.shots == 0 and (
        config.mapping == AUTO or (mapping.statistics is not None and getattr(mapping, "prior", None) is None)
    ):
        raise ReprogramError(
            f"0 shots were given, but mapping {config.mapping!r} is estimated from images; add --mapping gaussian "
            "--prior names (or texts, or a file), or give at least 1 shot"
        )
    return mapping


def build(config: FitConfig, frozen: Frozen, data: DataSet) -> Reprogrammed:
    """Program, frozen model and mapping together, on the device; `config` is resolved.

    With program `auto` this is the one that is tried, with mapping `auto` some mapping until one is chosen.
    """
    name = config.named_program
    own = {key: value for key, value in config.extras.items() if key in PROGRAMS[name].settings.model_fields}
    program = make_program(name, config.canvas, interpolation=frozen.program_interpolation, **own)
    if not frozen.differentiable and program.free_parameters:
        raise ReprogramError(f"{frozen.name} gives no gradients, so program {name!r} cannot be trained; use --program none")
    model = Reprogrammed(program, frozen, configured_mapping(config, frozen, data))
    check_views(model, config.training().views)
    model.to(choose_device(config.device))
    model.check_canvas()
    if config.precision != AUTO:
        model.precision = config.precision
    return model


def with_chosen_precision(config: FitConfig, model: Reprogrammed, progress: Progress | None) -> FitConfig:
    """For precision `auto`, choose it now, and tell why; the configuration then names it, so that nothing changes it."""
    chosen = model.choose_precision(config.precision)
    model.precision = chosen.precision
    if config.precision != AUTO:
        return config
    (progress or Progress()).say(f"precision auto: {chosen}")
    return config.model_copy(update={"precision": chosen.precision})


def check_precision(config: FitConfig, given: dict[str, Any], folder: Path) -> None:
    """Raise where a run that left its precision to another machine cannot go on in it here."""
    if given.get("precision") != AUTO or config.precision == AUTO:  # what was named is emulated where it must be
        return  # and of a run that only its checkpoint tells the precision of, that will say whether it can go on
    device = choose_device(config.device)
    if at_hand(device, config.precision) != config.precision:
        raise ReprogramError(
            f"the run in {str(folder)!r} was begun in {config.precision}, which this {device.type} does not have in "
            "hardware; continue it where it was begun, or start a new run with --precision fp32"
        )

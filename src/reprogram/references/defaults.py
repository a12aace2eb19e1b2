"""What a reference takes of a run's configuration, and its defaults: the one place that decides them. No torch here."""

from typing import Any

from reprogram.errors import ReprogramError
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.programs.registry import PROGRAMS
from reprogram.references.registry import REFERENCES
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve
from reprogram.settings import spelling

#: Fields of a configuration that mean nothing to a reference, which has neither program nor mapping.
FOREIGN = ("program", "mapping", "views")


def shared_config(name: str, config: FitConfig) -> FitConfig:
    """What of a run's configuration a reference uses; what it cannot do is refused.

    Args:
        name: of the method.
        config: what was given; program and mapping may be auto or none, which is what a reference has.
    """
    reference, said = REFERENCES[name], config.given
    owned = MAPPINGS.setting_names() | PROGRAMS.setting_names()
    for field, value in said.items():
        if (field in ("program", "mapping") and value not in (AUTO, "none")) or (field in owned and value is not None):
            raise ReprogramError(
                f"{spelling()(field, value)} was given, but reference {name!r} has neither a program nor a mapping; leave "
                "it out, or use reprogram fit"
            )
    if config.views > 1:
        raise ReprogramError(
            f"{spelling()('views', config.views)} was given, but only mappings are estimated from several views; leave it "
            "out"
        )
    if config.shots == 0:
        raise ReprogramError(f"0 shots were given, but reference {name!r} learns from images; give at least 1 shot")
    if not reference.views and said.get("augment", "none") != "none":
        raise ReprogramError(
            f"{spelling()('augment', config.augment)} was given, but reference {name!r} looks at every image once, as it "
            "is; leave it out"
        )
    return FitConfig.read({field: value for field, value in said.items() if field not in FOREIGN})


def resolve_reference(name: str, config: FitConfig, facts: Facts) -> FitConfig:
    """Fill in everything that was left open, for this method; what was given stays.

    The paper says of finetuning that it was trained as long as its programs, and nothing of its learning rates: under
    `protocol="paper"` epochs, batch size, validation and calibration are the paper's, rates and views are ours.

    >>> full = resolve_reference("finetune-full", FitConfig(protocol="paper"), Facts(input_size=224))
    >>> full.epochs, full.lr, full.mapping_lr, full.augment, full.val_fraction
    (200, 0.0001, 0.001, 'crop', 0.0)
    """
    own: dict[str, Any] = REFERENCES[name].settings().training(facts.flip_safe)
    given = shared_config(name, config).given
    resolved = resolve(FitConfig.read({**own, **given, "program": "none", "mapping": "none"}), facts)
    foreign = MAPPINGS.setting_names() | PROGRAMS.setting_names()
    return FitConfig.read({field: value for field, value in resolved.model_dump().items() if field not in foreign})

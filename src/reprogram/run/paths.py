"""Where a run's files are, wherever it is looked at from."""

import re
from pathlib import Path
from typing import Any

from reprogram.data.registry import absolute_spec
from reprogram.files.foreign import expanded, is_folder
from reprogram.mappings.registry import AUTO
from reprogram.mappings.settings import PRIORS
from reprogram.run.config import FitConfig
from reprogram.sources.registry import absolute_name, find_source

_UNSAFE = re.compile(r"[^\w.+=,@-]+")
_LONGEST = 120  # of a name, in characters: with four bytes each, still below what file systems take


def located(config: FitConfig) -> FitConfig:
    """The same with absolute paths, so that the run can be continued and evaluated from anywhere."""
    paths: dict[str, Any] = {
        "data": absolute_spec(config.data),
        "model": absolute_name(config.model),
        "data_root": _absolute(config.data_root),
    }
    if config.weights is not None:
        paths["weights"] = _absolute(config.weights)
    prior = config.extras.get("prior")
    if isinstance(prior, str) and prior not in PRIORS:
        paths["prior"] = _absolute(prior)
    options = find_source(config.model)[0].settings.read(config.options("source")).absolute()
    paths |= {name: getattr(options, name) for name in config.options("source")}
    return FitConfig.read({**config.given, **paths})


def default_folder(config: FitConfig) -> Path:
    """`runs/<data>-<program>-<mapping>`, of the latter two what was named: a folder for the run where none was named.

    >>> default_folder(FitConfig(data="/photos/my birds.csv", program="none", mapping="blm+")).as_posix()
    'runs/my-birds-none-blm+'
    >>> default_folder(FitConfig(data="/photos/my birds.csv")).as_posix()
    'runs/my-birds'
    """
    data = expanded(config.data, "data")
    name = data.name if is_folder(data) else data.stem
    named = [config.named_program] if config.program != AUTO or config.protocol == "paper" else []
    named += [config.named_mapping] if config.named_mapping != AUTO else []
    return Path("runs") / safe_name("-".join([name, *named]))


def safe_name(text: str) -> str:
    """A text as the name of a folder: letters, digits and a few signs, not too many, and no hidden one.

    >>> safe_name("my birds: 2024/a"), safe_name("../x"), len(safe_name("x" * 300 + "-1a2b"))
    ('my-birds-2024-a', '-x', 120)
    """
    name = _UNSAFE.sub("-", text)
    if len(name) > _LONGEST:  # the end tells alike ones apart
        name = f"{name[: _LONGEST - 41]}-{name[-40:]}"
    return name.lstrip(".") or "-"


def _absolute(path: str) -> str:
    return str(expanded(path).absolute())

"""What a finished run depends on besides its settings: the code that made it, the images, and the source model."""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import reprogram
from reprogram.experiments.grid import Cell
from reprogram.files import sha256
from reprogram.files.foreign import expanded, is_file
from reprogram.registry import GROUP
from reprogram.run.build import configured_data, configured_frozen
from reprogram.run.config import FitConfig

_ROOT = Path(reprogram.__file__).parent
#: Parts of the package that change no number of a run: what shows, serves and checks it.
_BESIDE = {"answers", "audit", "figures", "report", "predict", "export", "serve", "cli", "experiments"}
_PACKAGES = ("torch", "numpy", "pillow", "timm", "torchvision", "open_clip_torch", "transformers", "onnxruntime")
_MODEL_FIELDS = ("model", "pretrained", "weights")
_DATA_FIELDS = ("data", "data_root", "download", "split_seed", "group")
#: Settings that may name a file whose content a run's numbers depend on, and that no other digest covers.
_FILES = ("prior", "labels")


@functools.cache
def code_version() -> str:
    """The version of the library, a digest of what of its source a run's numbers depend on, plugins, and versions."""
    digest = hashlib.sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        parts = path.relative_to(_ROOT).parts
        if parts[0] not in _BESIDE:
            digest.update(f"{'/'.join(parts)}\n".encode())
            digest.update(path.read_bytes())
    return " ".join([f"reprogram {reprogram.__version__} ({digest.hexdigest()[:12]})", *_plugins(), *_versions()])


def _plugins() -> Iterator[str]:
    """Packages that bring mappings, programs or sources of their own: name, and a digest of their source."""
    for package in sorted({point.module.partition(".")[0] for point in metadata.entry_points(group=GROUP)}):
        digest, spec = hashlib.sha256(), find_spec(package)
        folders = [] if spec is None else list(spec.submodule_search_locations or [])
        files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
        if not folders and spec is not None and spec.origin is not None:
            files = [Path(spec.origin)]
        for path in files:
            digest.update(path.read_bytes())
        yield f"{package} ({digest.hexdigest()[:12]})"


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return found


class Origins:
    """Digests of the data and of the source models of cells, each computed once."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._sources: dict[str, str] = {}

    def data(self, config: FitConfig) -> Any:
        """The data set as it is on disk, before it is divided."""
        key = _key(config, _DATA_FIELDS)
        if key not in self._data:
            self._data = {key: configured_data(config)}  # the last one alone: they may be large
        return self._data[key]

    def of(self, cell: Cell) -> dict[str, str]:
        """What a run of this cell is made from now."""
        config = cell.config
        key = _key(config, _DATA_FIELDS)
        if key not in self._digests:
            self._digests[key] = self.data(config).digest()
        options = config.options("source")
        random = {} if config.pretrained else {"seed": config.seed}
        model = json.dumps([_key(config, _MODEL_FIELDS), options, random, key if _asks_classes(config) else ""], default=str)
        if model not in self._sources:
            self._sources[model] = configured_frozen(config, self.data(config)).fingerprint
        return {"code": code_version(), "data": self._digests[key], "source": self._sources[model], **_files(config)}


def _files(config: FitConfig) -> dict[str, str]:
    """Digests of the files that settings name."""
    named = {name: value for name in _FILES if isinstance(value := config.extras.get(name), str)}
    return {name: sha256(file) for name, value in named.items() if is_file(file := expanded(value, name))}


def _key(config: FitConfig, fields: tuple[str, ...]) -> str:
    return json.dumps([getattr(config, name) for name in fields])


def _asks_classes(config: FitConfig) -> bool:
    from reprogram.sources.registry import find_source

    return find_source(config.model)[0].kind.needs_classes


def differences(before: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """In which of code, data, source and files two origins differ."""
    return [name for name in ("code", "data", "source", *_FILES) if before.get(name) != now.get(name)]

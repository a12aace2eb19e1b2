"""Fuzz targets: what `reprogram export` writes and its loader reads."""

from pathlib import Path

from reprogram.export.adapters import read_adapter, write_adapter
from soak.targets import FileTarget


def _seeds(folder: Path) -> list[bytes]:
    import numpy as np

    arrays = {
        "weight": np.ones((4, 3), np.float32),
        "bias": np.zeros(3, np.float32),
        "pattern": np.ones((3, 2, 2), np.float32),
    }
    write_adapter(folder / "whole", arrays)
    write_adapter(folder / "plain", {name: arrays[name] for name in ("weight", "bias")})
    return [(folder / name).read_bytes() for name in ("whole", "plain")]


TARGETS = [
    FileTarget(
        "export.adapter",
        _seeds,
        read_adapter,
        file="task.onnx_adapter",
        dictionary=(b"TORT", b"weight", b"\xff\xff\xff\xff"),
    )
]

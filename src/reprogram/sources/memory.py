"""What a frozen model has said before: runs that send the same images through it under an untrained program share a pass.

Answers are remembered by the batch, by everything that they depend on to the bit: weights, program, pixels, precision,
device, threads and how the network is executed. So a run has the same numbers with a memory as without.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.files import read_tensors, write_tensors
from reprogram.programs.base import Program

_MOST = 2**31  # bytes on the disk
_LOGITS = "logits"


class PassMemory:
    """Source logits of batches, in a folder that several processes may share.

    Args:
        folder: where they are kept; it may be removed at any time.
        fingerprint: of the frozen model, and of how its answers become logits.
        most: bytes that the folder may take; what comes later is not kept.
    """

    def __init__(self, folder: Path, fingerprint: str, most: int = _MOST) -> None:
        self.folder, self.fingerprint, self.most = folder, fingerprint, most
        self._room: int | None = None

    def recall(self, program: Program, images: Tensor, how: str, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """What `compute` makes of the images, remembered where the program is as it was made.

        Args:
            program: what is put on the images. One that was trained is met once, and is not remembered.
            images: a batch, on the device that it is computed on.
            how: in which way the network is executed.
            compute: images → source logits (N, k_S).
        """
        start = None if torch.is_grad_enabled() else program.untrained()
        if start is None:
            return compute(images)
        path = self.folder / f"{self._key(program, start, images, how)}.safetensors"
        if path.exists():
            with suppress(ReprogramError, OSError, KeyError):  # damaged, or removed this moment: computed again
                found, _ = read_tensors(path, "remembered logits")
                return found[_LOGITS].to(images.device)
        logits = compute(images)
        if self._take(logits.nbytes):
            with suppress(OSError):  # a full disk: nobody depends on it
                write_tensors(path, {_LOGITS: logits})
        return logits

    def _key(self, program: Program, start: dict[str, Any], images: Tensor, how: str) -> str:
        device = images.device.type
        facts = [
            self.fingerprint,
            start,
            [part.flatten().tolist() for part in (program.mean, program.std)],
            how,
            str(images.dtype),
            tuple(images.shape),
            str(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "",
            torch.cuda.get_device_name(images.device) if device == "cuda" else device,
            torch.backends.cpu.get_cpu_capability() if device == "cpu" else "",
            torch.get_num_threads() if device == "cpu" else 0,
            torch.__version__,
        ]
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=20)
        digest.update(images.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _take(self, size: int) -> bool:
        """Whether there is room for so many bytes more; other processes' are counted when the first one asks."""
        if self._room is None:
            taken = 0
            with suppress(OSError):  # removed this moment
                taken = sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))
            self._room = self.most - taken
        self._room -= size
        return self._room >= 0

"""A trained program as a small picture."""

import io

import torch
from PIL import Image

from reprogram.programs.base import Program

_SIDE = 64  # pixels at most: larger canvases are shown smaller


@torch.no_grad()
def seen_of(program: Program) -> tuple[bytes, str] | None:
    """What the program makes of a grey image, as a PNG with its description; None where nothing was trained.

    Whatever the program is, this shows where θ lies and what it is: pixels of a border, or what is added to the image.
    """
    trained = [parameter for parameter in program.parameters() if bool(parameter.any())]
    if not trained or not all(bool(parameter.isfinite().all()) for parameter in trained):
        return None
    grey = torch.full((1, 3, program.image_size, program.image_size), 0.5, device=program.mean.device)
    canvas = (program(grey)[0] * program.std + program.mean).clamp(0, 1)
    pixels = (canvas * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    picture = Image.fromarray(pixels)
    if max(picture.size) > _SIDE:
        picture = picture.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue(), f"a grey image under the trained program ({program.name})"

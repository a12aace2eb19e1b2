"""A CLIP of 3 MB that is trained on the spot, on drawn shapes with captions, until its zero-shot answers are right."""

import json

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file
from torch.nn import functional as F

from reprogram.images.pictures import pil_to_tensor
from reprogram.sources.openclip_models import import_open_clip

SHAPES = ("circle", "square", "triangle", "cross", "ring", "bar")
CAPTIONS = (
    "This is a photo of a {}.",
    "a photo of a {}.",
    "a close-up photo of a {}.",
    "a drawing of a {}.",
    "a bright photo of the {}.",
    "one {}.",
)
CONFIG = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 48, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def draw(shape, rng, size=(32, 32), dim=False):
    """One shape of random colour, place and size on a random ground; `dim` has little contrast."""
    ground = rng.integers(60, 100, 3) if dim else rng.integers(0, 90, 3)
    colour = tuple(int(v) for v in (ground + rng.integers(25, 60, 3) if dim else rng.integers(120, 255, 3)))
    picture = Image.new("RGB", size, tuple(int(v) for v in ground))
    pen = ImageDraw.Draw(picture)
    scale = min(size) / 32
    x, y, r = (float(v) * scale for v in rng.integers((9, 9, 6), (23, 23, 10)))
    box = (x - r, y - r, x + r, y + r)
    if shape == "circle":
        pen.ellipse(box, fill=colour)
    elif shape == "square":
        pen.rectangle(box, fill=colour)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
    elif shape == "ring":
        pen.ellipse(box, outline=colour, width=round(2 * scale))
    elif shape == "bar":
        pen.rectangle((x - r, y - r / 4, x + r, y + r / 4), fill=colour)
    else:
        pen.line((x - r, y, x + r, y), fill=colour, width=round(3 * scale))
        pen.line((x, y - r, x, y + r), fill=colour, width=round(3 * scale))
    return picture


def drawn(shapes, count, seed, **how):
    """`count` drawings of each shape and their numbers: uint8 (N, 3, 32, 32) and int64 (N,)."""
    rng = np.random.default_rng(seed)
    images = [pil_to_tensor(draw(shape, rng, **how)) for shape in shapes for _ in range(count)]
    return torch.stack(images), torch.arange(len(shapes)).repeat_interleave(count)


def write_config(folder):
    """The architecture as a file of open_clip's format."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    return path


def train(folder, steps=400, batch=64, seed=0):
    """Write a trained model into a folder as open_clip lays it out: its configuration and its weights."""
    open_clip = import_open_clip()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG, "preprocess_cfg": {}}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        clip = open_clip.CLIP(**CONFIG)
        tokenize = open_clip.SimpleTokenizer(context_length=CONFIG["text_cfg"]["context_length"])
        captions = tokenize([caption.format(shape) for shape in SHAPES for caption in CAPTIONS])
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD))
        images, labels = drawn(SHAPES, 300, seed)
        images = (images / 255 - mean) / std
        clip.token_embedding.requires_grad_(False)  # as random as they are, words differ, and most of the numbers are here
        optimizer = torch.optim.Adam([part for part in clip.parameters() if part.requires_grad])
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
            chosen = torch.randint(len(images), (batch,))
            words = labels[chosen] * len(CAPTIONS) + torch.randint(len(CAPTIONS), (batch,))
            seen = clip.encode_image(images[chosen], normalize=True)
            read = clip.encode_text(captions, normalize=True)[words]
            same = (labels[chosen][:, None] == labels[chosen]).float()  # several captions of a batch are right
            loss = F.cross_entropy(clip.logit_scale.exp() * seen @ read.T, same / same.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    save_file({key: value.contiguous() for key, value in clip.state_dict().items()}, folder / "open_clip_model.safetensors")
    return folder

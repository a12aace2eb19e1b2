"""The paper's quick algorithm written straight down: the yardstick of `speed.py`, made of nothing but torch.

NCHW, fp32, the module as it is, every canvas of a batch in full, all logits of the epoch kept, one class after the other in
the statistics. It has no trick, and none of the library's code.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Plain:
    """A program around, or on, an image; a frozen module; a mapping estimated after each epoch.

    Args:
        module: the source model; a copy of it is used.
        mean: of its normalisation, (3, 1, 1).
        std: of its normalisation, (3, 1, 1).
        canvas: side of its input.
        image: side of the image; that of the canvas for a watermark.
        classes: k_T.
    """

    def __init__(self, module: nn.Module, mean: Tensor, std: Tensor, canvas: int, image: int, classes: int) -> None:
        self.module = copy.deepcopy(module).to(memory_format=torch.contiguous_format).eval().requires_grad_(False)
        self.mean, self.std, self.canvas, self.image, self.classes = mean, std, canvas, image, classes
        self.theta = torch.zeros(3, canvas, canvas, requires_grad=True)
        self.before = (canvas - image + 1) // 2
        inside = slice(self.before, self.before + image)
        self.mask = torch.ones(3, canvas, canvas)
        self.mask[:, inside, inside] = 0
        self.optimizer = torch.optim.Adam([self.theta], lr=0.01)
        self.omega = torch.zeros(1000, classes)
        self.logits: list[Tensor] = []
        self.labels: list[Tensor] = []

    def source_logits(self, images: Tensor) -> Tensor:
        """f_pre(f_in(x)) of images (N, 3, image, image) in [0, 1]."""
        if self.image == self.canvas:
            return self.module((images - self.mean) / self.std + self.theta)
        after = self.canvas - self.image - self.before
        canvas = F.pad(images, (self.before, after, self.before, after)) + self.theta.sigmoid() * self.mask
        return self.module((canvas - self.mean) / self.std)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step of training; the logits are kept for the epoch's statistics."""
        logits = self.source_logits(images)
        loss = F.cross_entropy(logits @ self.omega, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.logits.append(logits.detach())
        self.labels.append(labels)
        return logits.detach()


def plain_blm(logits: Tensor, labels: Tensor, classes: int, smoothing: float = 1.0) -> Tensor:
    """ω of BLM from all logits (n, k_S) of an epoch, class by class."""
    predicted = logits.argmax(1)
    joint = torch.zeros(logits.shape[1], classes)
    for target in range(classes):
        chosen = predicted[labels == target]
        for source in chosen.unique():
            joint[source, target] = (chosen == source).sum()
    return _columns(joint, smoothing)


def plain_blm_plus(logits: Tensor, labels: Tensor, classes: int, top_k: int, smoothing: float = 1.0) -> Tensor:
    """ω of BLM+ from all logits of an epoch, class by class."""
    joint = torch.zeros(logits.shape[1], classes, dtype=logits.dtype)
    probabilities = logits.softmax(1)
    for target in range(classes):
        rows = probabilities[labels == target]
        top = rows.topk(top_k, dim=1)
        joint[:, target] = torch.zeros_like(rows).scatter(1, top.indices, top.values).sum(0)
    return _columns(joint, smoothing)


def _columns(joint: Tensor, smoothing: float) -> Tensor:
    omega = joint / (joint.sum(1, keepdim=True) + smoothing)
    return omega / omega.sum(0, keepdim=True)

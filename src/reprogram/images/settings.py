"""The words for what is done to images."""

from typing import Literal

Augment = Literal["none", "crop", "flip", "trivial", "trivial-flip"]


def crops(augment: Augment) -> bool:
    """Whether windows are cut out of images that are decoded a little larger."""
    return augment in ("crop", "flip")


def mirrors(augment: Augment) -> bool:
    """Whether images may be mirrored: only where that was asked for, as mirrored letters or signs change their meaning."""
    return augment in ("flip", "trivial-flip")

"""The words for what is done to images."""

from typing import Literal

Augment = Literal["none", "crop", "flip"]

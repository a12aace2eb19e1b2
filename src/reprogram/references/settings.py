"""What the reference methods can be told beside what every run is told (`FitConfig`)."""

from typing import Any

from pydantic import Field

from reprogram.settings import Settings


class ReferenceSettings(Settings):
    """Base of the settings of reference methods; the method of none other has these alone."""

    def training(self, flip_safe: bool | None) -> dict[str, Any]:
        """Fields of `FitConfig` that this method takes where nothing is said.

        Args:
            flip_safe: whether a mirrored image keeps its class; None where nobody has said so.
        """
        return {"augment": "none"}


class ProbeSettings(ReferenceSettings):
    """Of probe."""

    strength: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="λ of the probe: mean cross-entropy + λ/2 · |W|², on standardised features; by default chosen on the "
        "validation images, or by cross-validation",
    )


class FinetuneLinearSettings(ReferenceSettings):
    """Of finetune-linear."""

    def training(self, flip_safe: bool | None) -> dict[str, Any]:
        """Adam at the rate that is usual for a new layer."""
        return {"augment": "none", "lr": 1e-3}


class FinetuneFullSettings(ReferenceSettings):
    """Of finetune-full."""

    def training(self, flip_safe: bool | None) -> dict[str, Any]:
        """Small steps for what is trained already, larger ones for the new layer; and views, as it could learn by heart."""
        return {"augment": "flip" if flip_safe else "crop", "lr": 1e-4, "mapping_lr": 1e-3}

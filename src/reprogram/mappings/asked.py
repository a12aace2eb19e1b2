"""What a caller wants to know about a prediction besides the class; checked without torch."""

from typing import Literal

from pydantic import Field

from reprogram.settings import Settings

Calibration = Literal["temperature", "none"]
CALIBRATION = "Probabilities: by the measured temperature, or none for the plain softmax."


class Asked(Settings):
    """What is asked beside the class itself.

    Attributes:
        calibration: whether probabilities are brought to the mapping's measured temperature, or are the plain softmax.
        coverage: give a set of classes that holds the true one this often; None for no sets.
        per_class: the coverage holds for each class by itself.
        strict: sets by one part of the samples that the mapping was estimated without: a proof, but larger sets.
        unlike: mark as none of the classes what is stranger than all but this share of the training samples.
    """

    calibration: Calibration = Field("temperature", description=CALIBRATION)
    coverage: float | None = Field(
        None, gt=0, lt=1, description="Also give the set of classes that holds the true one this often, such as 0.9."
    )
    per_class: bool = Field(False, description="Let --coverage hold for each class by itself.")
    strict: bool = Field(False, description="Sets by split conformal prediction: an exact guarantee, but larger sets.")
    unlike: float | None = Field(
        None, gt=0, lt=1, description="Mark what is stranger than all but this share of the training samples, such as 0.01."
    )

    @property
    def more(self) -> bool:
        """Whether anything but probabilities is asked for."""
        return self.coverage is not None or self.unlike is not None


def check_calibration(calibration: object) -> Calibration:
    """The same, or an error unless it is one that there is."""
    return Asked.read({"calibration": calibration}).calibration

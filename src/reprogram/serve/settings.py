"""What can be chosen for a service before anything heavy is imported."""

from typing import Literal

Backend = Literal["torch", "onnxruntime"]

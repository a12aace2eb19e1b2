"""What an export is called, and the names in its graph. Nothing here imports torch or numpy."""

from typing import Literal, get_args

Format = Literal["onnx", "onnx-adapter", "torch"]
FORMATS: tuple[str, ...] = get_args(Format)
#: Of the form of what is written; another one is refused.
VERSION = 1
MODEL, ADAPTER, PROGRAM, BACKBONE, CARD = "model.onnx", "task.onnx_adapter", "model.pt2", "backbone.onnx", "README.md"
#: The file that holds the network, by format.
FILES: dict[str, str] = {"onnx": MODEL, "onnx-adapter": ADAPTER, "torch": PROGRAM}
#: Inputs and outputs of the graphs.
IMAGES, PATTERN, WEIGHT, BIAS = "images", "pattern", "weight", "bias"
PROBABILITIES, LOGITS, FEATURES = "probabilities", "logits", "features"
#: Under this key of an ONNX file's metadata stands one JSON text with all that is known of it.
METADATA = "reprogram"
#: The most by which a probability may differ from that of the live model.
LIMIT = 1e-4

"""What a child process does with a model's file before this one loads it. Nothing here imports torch."""

from pathlib import Path

_PRECISIONS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}


def walk_onnx(path: Path) -> None:
    """Load a network and let it answer one black image: a network is a program, and may take any memory or never end."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        free = [1, *(3 if 3 in (given.shape[1], given.shape[3]) and side == 3 else 224 for side in given.shape[1:])]
        shape = [side if isinstance(side, int) else default for side, default in zip(given.shape, free, strict=True)]
        image = np.zeros(shape, _PRECISIONS[given.type])
    except Exception as error:  # what is wrong with it is said by who loads it
        if "alloc" in str(error):
            raise
        return
    try:
        session.run(None, {given.name: image})
    except Exception as error:  # perhaps it wants another size, which the user may say
        if "alloc" in str(error):
            raise

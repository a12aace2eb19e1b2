"""An ONNX classifier of 17 numbers: the mean of each channel, then a linear layer of 5 outputs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def onnx_of_means(path):
    """Write it for images of 8 × 8 pixels."""
    nodes = [
        helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "weight"], ["logits"]),
    ]
    weight = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ("n", 3, 8, 8))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.array([2, 3]), "axes")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path

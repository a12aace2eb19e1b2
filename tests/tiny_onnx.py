"""An ONNX classifier of 17 numbers: the mean of each channel, then a linear layer of 5 outputs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def onnx_of_means(path, *, opset=18, batch="n", channels_last=False, half=False, softmax=False):
    """Write it for images of 8 × 8 pixels; by default as most exporters would, with logits as output."""
    sides = [1, 2] if channels_last else [2, 3]
    axes = ["axes"] if opset >= 18 else []  # an attribute before
    older = {} if axes else {"axes": sides}
    nodes = [
        helper.make_node("ReduceMean", ["images", *axes], ["means"], keepdims=0, **older),
        helper.make_node("MatMul", ["means", "weight"], ["products" if softmax else "logits"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["products"], ["logits"], axis=1))
    weight = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float16 if half else np.float32)
    constants = [numpy_helper.from_array(weight, "weight")]
    if axes:
        constants.append(numpy_helper.from_array(np.array(sides), "axes"))
    dtype, shape = TensorProto.FLOAT16 if half else TensorProto.FLOAT, (8, 8, 3) if channels_last else (3, 8, 8)
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", dtype, (batch, *shape))],
        [helper.make_tensor_value_info("logits", dtype, [batch, 5])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path

"""Small models with seeded random weights: a convolutional network as ONNX, a decoder for CTranslate2.

Run it with the Python that has the engines: `python small_models.py FOLDER`.
"""

import sys
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, LAYERS, SIDE, CLASSES = 64, 8, 32, 10
WIDTH, HEADS, DEPTH, VOCABULARY = 256, 4, 4, 512


def convolutions(file: Path, rng: np.random.Generator) -> None:
    """Write eight 3 × 3 convolutions with residual sums, for images of 32 × 32."""
    nodes, tensors, last = [], [], "images"
    for layer in range(LAYERS):
        inside = CHANNELS if layer else 3
        scale = (2.0 / (9 * inside)) ** 0.5
        weight = (rng.standard_normal((CHANNELS, inside, 3, 3)) * scale).astype(np.float32)
        tensors.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Conv", [last, f"w{layer}"], [f"c{layer}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        if layer:
            nodes.append(helper.make_node("Add", [f"r{layer}", last], [f"s{layer}"]))
        last = f"s{layer}" if layer else "r0"
    weight = (rng.standard_normal((CHANNELS, CLASSES)) / 8.0).astype(np.float32)
    tensors.append(numpy_helper.from_array(weight, "head"))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "head"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(file))


def decoder(folder: Path, rng: np.random.Generator) -> None:
    """Write a decoder of four layers."""
    spec = ctranslate2.specs.TransformerDecoderModelSpec.from_config(DEPTH, HEADS)

    def linear(layer: Any, rows: int, columns: int) -> None:  # noqa: ANN401
        weight = rng.standard_normal((rows, columns)) / columns**0.5
        layer.weight = weight.astype(np.float32)
        layer.bias = np.zeros(rows, np.float32)

    def norm(layer: Any) -> None:  # noqa: ANN401
        layer.gamma, layer.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    inside = spec.decoder
    inside.embeddings.weight = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    inside.position_encodings.encodings = rng.standard_normal((512, WIDTH)).astype(np.float32)
    norm(inside.layer_norm)
    linear(inside.projection, VOCABULARY, WIDTH)
    for layer in inside.layer:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
        linear(layer.self_attention.linear[1], WIDTH, WIDTH)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 4 * WIDTH, WIDTH)
        linear(layer.ffn.linear_1, WIDTH, 4 * WIDTH)
    words = ["<s>", "</s>", "<unk>", *(f"t{n}" for n in range(VOCABULARY - 3))]
    spec.register_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = words[:3]
    spec.validate()
    spec.save(str(folder))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    convolutions(target / "small.onnx", np.random.default_rng(0))
    (target / "decoder").mkdir(exist_ok=True)
    decoder(target / "decoder", np.random.default_rng(1))

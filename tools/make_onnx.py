#!/usr/bin/env python3
"""Turn the weights of a BERT-like sentence encoder into one ONNX file.

    make_onnx.py MODEL_DIR OUT.onnx [--name NAME]

MODEL_DIR holds config.json and model.safetensors (float32). The graph takes int64 input_ids, attention_mask and
token_type_ids of shape [batch, seq] and answers with float32 last_hidden_state of shape [batch, seq, hidden]. Attention,
GELU and layer norms are written as the fused operators of ONNX Runtime (domain com.microsoft), so no optimizer has to
find them again at every start. Pooling is left to the caller: the library's operators for it add in an order that depends
on the batch, and so round a text's vector differently next to other texts.

Needs Python 3.8 and nothing else. The same input gives the same bytes on every machine: the sha256 of the output is
part of what identifies a vector, so a change of the bytes written here makes every user embed everything again.
"""

import argparse
import json
import math
import mmap
import os
import struct
import sys
from array import array

FLOAT, INT64, INT32 = 1, 7, 6  # TensorProto.DataType
ONNX_OPSET, MICROSOFT_OPSET, IR_VERSION = 17, 1, 8
MICROSOFT = "com.microsoft"
OUTPUT = "last_hidden_state"


class Refused(Exception):
    """The model is not one this program can write. The message says what is in the way."""


# --- The part of protocol buffers that ONNX needs. Messages are lists of byte strings, so that weights are never copied.


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return [varint(field << 3) + varint(value)]


def float32(field, value):
    return [varint(field << 3 | 5) + struct.pack("<f", value)]


def message(field, parts):
    return [varint(field << 3 | 2) + varint(sum(len(p) for p in parts))] + parts


def text(field, value):
    return message(field, [value.encode()])


# --- Weights


class Weights:
    """The float32 tensors of a safetensors file, read through a memory map."""

    def __init__(self, path):
        with open(path, "rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        (size,) = struct.unpack("<Q", content[:8])
        self._data = content[8 + size :]
        self._header = json.loads(bytes(content[8 : 8 + size]))
        self._header.pop("__metadata__", None)
        # A model saved with a head on top keeps its encoder under a prefix.
        suffix = "embeddings.word_embeddings.weight"
        found = [name[: -len(suffix)] for name in self._header if name.endswith(suffix)]
        if len(found) != 1:
            raise Refused(f"{path}: expected one tensor named *{suffix}, found {len(found)}")
        self._prefix = found[0]

    def get(self, name, *shape):
        """Returns the tensor's numbers, row by row; its shape must be the one given."""
        entry = self._header.get(self._prefix + name)
        if entry is None:
            raise Refused(f"tensor {self._prefix + name} is missing")
        if entry["dtype"] != "F32" or tuple(entry["shape"]) != shape:
            raise Refused(f"tensor {self._prefix + name} is {entry['dtype']} {entry['shape']}, not F32 {list(shape)}")
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= len(self._data) or end - begin != 4 * math.prod(shape):
            raise Refused(f"tensor {self._prefix + name} is not whole: the file is damaged")
        numbers = array("f", bytes(self._data[begin:end]))
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers


def transposed(numbers, columns):
    """Rows become columns: torch keeps a linear layer as [out, in], MatMul wants [in, out]."""
    out = array("f")
    for column in range(columns):
        out.extend(numbers[column::columns])
    return out


# --- The graph


class Graph:
    """Nodes and constants in the order they were added; every method returns the name of what it made."""

    def __init__(self):
        self.parts = []  # encoded fields of GraphProto: nodes (1) and initializers (5)
        self._count = 0

    def constant(self, name, values, *shape):
        if sys.byteorder == "big":
            values = array("f", values)
            values.byteswap()
        tensor = [part for dim in shape for part in number(1, dim)]
        tensor += number(2, FLOAT) + text(8, name) + message(9, [values.tobytes()])
        self.parts += message(5, tensor)
        return name

    def node(self, operator, inputs, output, domain="", unused=(), **attributes):
        node = [part for name in inputs for part in text(1, name)]
        node += [part for name in (output, *unused) for part in text(2, name)]
        node += text(3, f"{operator}_{self._count}") + text(4, operator)
        for name, value in sorted(attributes.items()):
            node += message(5, attribute(name, value))
        if domain:
            node += text(7, domain)
        self.parts += message(1, node)
        self._count += 1
        return output


def attribute(name, value):
    if isinstance(value, float):
        return text(1, name) + float32(2, value) + number(20, 1)
    return text(1, name) + number(3, value) + number(20, 2)


def tensor_type(name, kind, shape):
    dims = []
    for dim in shape:
        dims += message(1, number(1, dim) if isinstance(dim, int) else text(2, dim))
    return text(1, name) + message(2, message(1, number(1, kind) + message(2, dims)))


def encoder(graph, weights, config):
    """Adds embeddings and all layers, the last of which gives the graph's output."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    epsilon = float(config["layer_norm_eps"])

    def vector(name, size):
        return graph.constant(name, weights.get(name, size), size)

    def table(name, rows):
        return graph.constant(name, weights.get(name, rows, hidden), rows, hidden)

    def linear(name, outputs, inputs):
        numbers = transposed(weights.get(name, outputs, inputs), inputs)
        return graph.constant(name, numbers, inputs, outputs)

    for name in ("input_ids", "attention_mask", "token_type_ids"):
        graph.node("Cast", [name], name + "_int32", to=INT32)
    # The operator has a second output, a mask index, that must be there. It is not used: Attention reads the mask itself.
    state = graph.node(
        "EmbedLayerNormalization",
        [
            "input_ids_int32",
            "token_type_ids_int32",
            table("embeddings.word_embeddings.weight", config["vocab_size"]),
            table("embeddings.position_embeddings.weight", config["max_position_embeddings"]),
            table("embeddings.token_type_embeddings.weight", config["type_vocab_size"]),
            vector("embeddings.LayerNorm.weight", hidden),
            vector("embeddings.LayerNorm.bias", hidden),
        ],
        "embeddings",
        MICROSOFT,
        unused=["mask_index"],
        epsilon=epsilon,
    )
    layers = config["num_hidden_layers"]
    for index in range(layers):
        layer = f"encoder.layer.{index}."
        attention = layer + "attention."
        rows, biases = array("f"), array("f")
        for part in ("query", "key", "value"):
            rows.extend(weights.get(f"{attention}self.{part}.weight", hidden, hidden))
            biases.extend(weights.get(f"{attention}self.{part}.bias", hidden))
        out = graph.node(
            "Attention",
            [
                state,
                graph.constant(attention + "qkv.weight", transposed(rows, hidden), hidden, 3 * hidden),
                graph.constant(attention + "qkv.bias", biases, 3 * hidden),
                "attention_mask_int32",
            ],
            attention + "self",
            MICROSOFT,
            num_heads=config["num_attention_heads"],
        )
        out = graph.node("MatMul", [out, linear(attention + "output.dense.weight", hidden, hidden)], attention + "dense")
        norm, bias = attention + "output.LayerNorm.", attention + "output.dense.bias"
        state = graph.node(
            "SkipLayerNormalization",
            [out, state, vector(norm + "weight", hidden), vector(norm + "bias", hidden), vector(bias, hidden)],
            attention + "output",
            MICROSOFT,
            epsilon=epsilon,
        )
        out = graph.node("MatMul", [state, linear(layer + "intermediate.dense.weight", inner, hidden)], layer + "inner")
        out = graph.node("BiasGelu", [out, vector(layer + "intermediate.dense.bias", inner)], layer + "gelu", MICROSOFT)
        out = graph.node("MatMul", [out, linear(layer + "output.dense.weight", hidden, inner)], layer + "dense")
        norm, bias = layer + "output.LayerNorm.", layer + "output.dense.bias"
        state = graph.node(
            "SkipLayerNormalization",
            [out, state, vector(norm + "weight", hidden), vector(norm + "bias", hidden), vector(bias, hidden)],
            layer + "output" if index + 1 < layers else OUTPUT,
            MICROSOFT,
            epsilon=epsilon,
        )


# --- The model folder


def read_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    expected = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise Refused(f"config.json: {key} is {config[key]!r}; only {value!r} is supported")
    return config


def model(folder, name):
    """Returns the encoded ModelProto as a list of byte strings."""
    config = read_config(folder)
    graph = Graph()
    encoder(graph, Weights(os.path.join(folder, "model.safetensors")), config)

    body = graph.parts + text(2, "sentence_encoder")
    for input_name in ("input_ids", "attention_mask", "token_type_ids"):
        body += message(11, tensor_type(input_name, INT64, ["batch", "seq"]))
    body += message(12, tensor_type(OUTPUT, FLOAT, ["batch", "seq", config["hidden_size"]]))

    parts = number(1, IR_VERSION) + text(2, "embedsidecar") + message(7, body)
    parts += message(8, text(1, "") + number(2, ONNX_OPSET))
    parts += message(8, text(1, MICROSOFT) + number(2, MICROSOFT_OPSET))
    return parts + message(14, text(1, "name") + text(2, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model_dir", help="folder with config.json and model.safetensors")
    parser.add_argument("out", help="ONNX file to write")
    parser.add_argument("--name", help="name of the model, kept in the file (default: the folder's name)")
    args = parser.parse_args()
    name = args.name or os.path.basename(os.path.abspath(args.model_dir))
    unfinished = args.out + ".tmp"
    try:
        parts = model(args.model_dir, name)
        with open(unfinished, "wb") as file:
            file.writelines(parts)
        os.replace(unfinished, args.out)
    except (Refused, OSError, KeyError, ValueError, struct.error) as error:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        what = f"config.json has no {error}" if isinstance(error, KeyError) else error
        sys.exit(f"make_onnx.py: error: {args.model_dir}: {what}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Turn the weights of a BERT-like sentence encoder into one ONNX file.

    make_onnx.py MODEL_DIR OUT.onnx [--name NAME] [--int8] [--words]

MODEL_DIR holds config.json and model.safetensors of a BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT or MPNet. The graph
takes int64 input_ids, attention_mask and (where the model knows them) token_type_ids of shape [batch, seq] and answers with
float32 last_hidden_state of shape [batch, seq, hidden]. Attention, GELU and layer norms are written as the fused operators
of ONNX Runtime (domain com.microsoft), so no optimizer has to find them again at every start. With --int8 the weights of the
layers have 8 bits, with a scale for each output channel; embeddings stay as they are. With --words the graph has the head for
masked words behind its last layer, as sparse models need it, and answers with logits of shape [batch, seq, vocab]. Pooling is left to the caller: the library's operators for it add in an order that depends
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

FLOAT, INT8, INT64, INT32 = 1, 3, 7, 6  # TensorProto.DataType
ONNX_OPSET, MICROSOFT_OPSET, IR_VERSION = 17, 1, 8
MICROSOFT = "com.microsoft"
LARGEST_FILE = 2**31 - 1  # of the format
OUTPUT, WORDS = "last_hidden_state", "logits"


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
    """The tensors of a safetensors file as float32, read through a memory map."""

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
        """Returns the tensor's numbers, row by row; its shape must be the one given. Those of a head have no prefix."""
        entry = self._header.get(self._prefix + name, self._header.get(name))
        if entry is None:
            raise Refused(f"tensor {self._prefix + name} is missing")
        if entry["dtype"] not in DECODERS or tuple(entry["shape"]) != shape:
            raise Refused(f"tensor {self._prefix + name} is {entry['dtype']} {entry['shape']}, not F32 {list(shape)} as config.json says")
        width, decode = DECODERS[entry["dtype"]]
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= len(self._data) or end - begin != width * math.prod(shape):
            raise Refused(f"tensor {self._prefix + name} is not whole: the file is damaged")
        numbers = decode(bytes(self._data[begin:end]))
        if not math.isfinite(sum(numbers)):
            raise Refused(f"tensor {self._prefix + name} has numbers that are not finite")
        return numbers


def from_float32(data):
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def from_bfloat16(data):
    whole = bytearray(2 * len(data))  # a bfloat16 is the upper half of a float32
    whole[2::4], whole[3::4] = data[0::2], data[1::2]
    return from_float32(bytes(whole))


def from_float16(data):
    numbers = array("f")
    step = 1 << 16
    for begin in range(0, len(data), step):
        piece = data[begin : begin + step]
        numbers.extend(struct.unpack(f"<{len(piece) // 2}e", piece))
    return numbers


DECODERS = {"F32": (4, from_float32), "BF16": (2, from_bfloat16), "F16": (2, from_float16)}  # bytes of a number


def transposed(numbers, columns):
    """Rows become columns: torch keeps a linear layer as [out, in], MatMul wants [in, out]."""
    out = array("f")
    for column in range(columns):
        out.extend(numbers[column::columns])
    return out


def quantized(numbers, inputs):
    """Rows become columns of 8 bits, each with a scale of its own: the row's largest number becomes 127."""
    scales, rows = array("f"), array("b")
    for begin in range(0, len(numbers), inputs):
        row = numbers[begin : begin + inputs]
        largest = max(max(row), -min(row)) or 1.0
        scales.append(largest / 127)
        factor = 127 / largest
        rows.extend([round(number * factor) for number in row])
    columns = array("b")
    for column in range(inputs):
        columns.extend(rows[column::inputs])
    return columns, scales


def padded(columns):
    """Returns the number of columns that a matrix of 8 bits gets: ONNX Runtime 1.22 to 1.24 computes the last of them wrongly on
    CPUs with AMX when a thread has more than 16 left over behind its last 32. Threads share columns by sixteens."""
    return columns if columns < 16 else columns + -columns % 16


def padded_groups(numbers, group, wide):
    """Every so many numbers become more, by zeros behind them."""
    if group == wide:
        return numbers
    out, zeros = array("f"), array("f", bytes(4 * (wide - group)))
    for begin in range(0, len(numbers), group):
        out.extend(numbers[begin : begin + group])
        out.extend(zeros)
    return out


# --- The graph


class Graph:
    """Nodes and constants in the order they were added; every method returns the name of what it made."""

    def __init__(self):
        self.parts = []  # encoded fields of GraphProto: nodes (1) and initializers (5)
        self._count = 0

    def constant(self, name, values, *shape, kind=FLOAT):
        if sys.byteorder == "big":
            values = array(values.typecode, values)
            values.byteswap()
        tensor = [part for dim in shape for part in number(1, dim)]
        tensor += number(2, kind) + text(8, name) + message(9, [values.tobytes()])
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
    if isinstance(value, list):
        return text(1, name) + [part for one in value for part in number(8, one)] + number(20, 7)
    if isinstance(value, float):
        return text(1, name) + float32(2, value) + number(20, 1)
    return text(1, name) + number(3, value) + number(20, 2)


def tensor_type(name, kind, shape):
    dims = []
    for dim in shape:
        dims += message(1, number(1, dim) if isinstance(dim, int) else text(2, dim))
    return text(1, name) + message(2, message(1, number(1, kind) + message(2, dims)))


def bucket(distance, buckets):
    """Returns the row of MPNet's table for a token that stands so far behind another: near ones have one each, far ones share.

    The reference computes in 32 bits, and so rounds in some places to another row than exact numbers would.
    """
    half, farthest = buckets // 2, 128
    first, distance = (half if distance > 0 else 0), abs(distance)
    exact = half // 2
    if distance < exact:
        return first + distance

    def single(value):
        return struct.unpack("<f", struct.pack("<f", value))[0]

    share = single(single(math.log(distance / exact)) / single(math.log(farthest / exact)))
    return first + min(exact + int(single(share * (half - exact))), half - 1)


class Encoder:
    """Adds embeddings and all layers to a graph, the last of which gives the graph's output."""

    def __init__(self, graph, weights, shape, int8):
        self.graph, self.weights, self.shape, self.int8 = graph, weights, shape, int8
        self.bias = ""  # what is added to attention scores

    def vector(self, name, size):
        return self.graph.constant(name, self.weights.get(name, size), size)

    def table(self, name, rows, skip=0):
        """The rows of a table of embeddings but the first ones."""
        numbers = self.weights.get(name, rows, self.shape.hidden)
        return self.graph.constant(name, numbers[skip * self.shape.hidden :], rows - skip, self.shape.hidden)

    def product(self, state, name, outputs, inputs, output):
        """Adds the product of a state and a linear layer's weights."""
        return self.product_of(self.weights.get(name, outputs, inputs), state, name, outputs, inputs, output)

    def product_of(self, numbers, state, name, outputs, inputs, output):
        if not self.int8:
            matrix = self.graph.constant(name, transposed(numbers, inputs), inputs, outputs)
            return self.graph.node("MatMul", [state, matrix], output)
        wide = padded(outputs)
        columns, scales = quantized(padded_groups(numbers, outputs * inputs, wide * inputs), inputs)
        matrix = self.graph.constant(name, columns, inputs, wide, kind=INT8)
        scale = self.graph.constant(name + ".scale", scales, wide)
        if wide == outputs:
            return self.graph.node("DynamicQuantizeMatMul", [state, matrix, scale], output, MICROSOFT)
        self.graph.node("DynamicQuantizeMatMul", [state, matrix, scale], output + ".padded", MICROSOFT)
        bounds = [self.graph.constant(name + key, array("q", [n]), 1, kind=INT64) for key, n in ((".begin", 0), (".end", outputs), (".axis", 2))]
        return self.graph.node("Slice", [output + ".padded", *bounds], output)

    def embeddings(self):
        shape = self.shape
        for name in shape.inputs:
            self.graph.node("Cast", [name], name + "_int32", to=INT32)
        types = shape.types > 0
        # The operator has a second output, a mask index, that must be there. It is not used: Attention reads the mask itself.
        return self.graph.node(
            "EmbedLayerNormalization",
            [
                "input_ids_int32",
                "token_type_ids_int32" if types else "",
                self.table("embeddings.word_embeddings.weight", shape.vocab),
                self.table("embeddings.position_embeddings.weight", shape.positions, shape.skipped),
                self.table("embeddings.token_type_embeddings.weight", shape.types) if types else "",
                self.vector("embeddings.LayerNorm.weight", shape.hidden),
                self.vector("embeddings.LayerNorm.bias", shape.hidden),
            ],
            "embeddings",
            MICROSOFT,
            unused=["mask_index"],
            epsilon=shape.epsilon,
        )

    def attention(self, state, layer):
        shape, hidden = self.shape, self.shape.hidden
        name = layer + "attention."
        rows, biases = array("f"), array("f")
        for part in shape.names["qkv"]:
            rows.extend(self.weights.get(f"{layer}{part}.weight", hidden, hidden))
            biases.extend(self.weights.get(f"{layer}{part}.bias", hidden))
        if self.int8:
            size, wide = self.head_sizes()
            rows, biases = padded_groups(rows, size * hidden, wide * hidden), padded_groups(biases, size, wide)
            outputs = 3 * shape.heads * wide
            columns, scales = quantized(rows, hidden)
            self.graph.node("DynamicQuantizeLinear", [state], name + "input", unused=[name + "input.scale", name + "input.zero"])
            inputs = [
                name + "input",
                self.graph.constant(name + "qkv.weight", columns, hidden, outputs, kind=INT8),
                self.graph.constant(name + "qkv.bias", biases, outputs),
                name + "input.scale",
                self.graph.constant(name + "qkv.scale", scales, outputs),
                "attention_mask_int32",
                name + "input.zero",
                self.graph.constant(name + "qkv.zero", array("b", bytes(outputs)), outputs, kind=INT8),
            ]
            scale = {} if wide == size else {"scale": 1 / math.sqrt(size)}  # of the numbers that are there
            return self.graph.node("QAttention", inputs, name + "self", MICROSOFT, num_heads=shape.heads, **scale)
        inputs = [
            state,
            self.graph.constant(name + "qkv.weight", transposed(rows, hidden), hidden, 3 * hidden),
            self.graph.constant(name + "qkv.bias", biases, 3 * hidden),
            "attention_mask_int32",
        ]
        if self.bias:
            inputs += ["", self.bias]
        return self.graph.node("Attention", inputs, name + "self", MICROSOFT, num_heads=shape.heads)

    def head_sizes(self):
        """Returns how many numbers each head of attention gives, and how many places they have in 8 bits."""
        size = self.shape.hidden // self.shape.heads
        return size, padded(size) if self.int8 else size

    def normalized(self, out, state, layer, norm, bias, output):
        """Adds a residual connection with its bias and its layer norm."""
        hidden = self.shape.hidden
        norm, bias = layer + self.shape.names[norm] + ".", layer + self.shape.names[bias] + ".bias"
        return self.graph.node(
            "SkipLayerNormalization",
            [out, state, self.vector(norm + "weight", hidden), self.vector(norm + "bias", hidden), self.vector(bias, hidden)],
            output,
            MICROSOFT,
            epsilon=self.shape.epsilon,
        )

    def layer(self, state, layer, output):
        shape, names = self.shape, self.shape.names
        out = self.attention(state, layer)
        size, wide = self.head_sizes()
        name = layer + names["out"] + ".weight"
        numbers = padded_groups(self.weights.get(name, shape.hidden, shape.hidden), size, wide)
        out = self.product_of(numbers, out, name, shape.hidden, shape.heads * wide, layer + "attention.dense")
        state = self.normalized(out, state, layer, "norm", "out", layer + "attention.output")
        out = self.product(state, layer + names["inner"] + ".weight", shape.inner, shape.hidden, layer + "inner")
        bias = self.vector(layer + names["inner"] + ".bias", shape.inner)
        out = self.graph.node("BiasGelu", [out, bias], layer + "gelu", MICROSOFT)
        out = self.product(out, layer + names["outer"] + ".weight", shape.hidden, shape.inner, layer + "dense")
        return self.normalized(out, state, layer, "last_norm", "outer", output)

    def relative_positions(self):
        """Adds what MPNet adds to the scores of attention: a number for each distance of two tokens, the same in all layers."""
        heads, most = self.shape.heads, self.shape.positions - self.shape.skipped
        numbers = self.weights.get("encoder.relative_attention_bias.weight", self.shape.buckets, heads)
        by_distance = array("f")  # from the farthest before a token to the farthest behind it
        for distance in range(1 - most, most):
            begin = heads * bucket(distance, self.shape.buckets)
            by_distance.extend(numbers[begin : begin + heads])
        table = self.graph.constant("distances.bias", by_distance, 2 * most - 1, heads)

        def integer(name, value, *shape):
            return self.graph.constant("distances." + name, array("q", [value]), *shape, kind=INT64)

        zero, one, middle = integer("zero", 0), integer("one", 1), integer("middle", most - 1)
        first, second = integer("first", 0, 1), integer("second", 1, 1)  # axes

        def node(operator, inputs, output, **attributes):
            return self.graph.node(operator, inputs, "distances." + output, **attributes)

        shape = node("Shape", ["input_ids"], "shape")
        length = node("Gather", [shape, one], "length")
        places = node("Range", [zero, length, one], "places")
        from_middle = node("Add", [places, middle], "from_middle")
        row, column = node("Unsqueeze", [from_middle, first], "row"), node("Unsqueeze", [places, second], "column")
        biases = node("Gather", [table, node("Sub", [row, column], "numbers")], "biases")  # of each pair of tokens, by head
        by_head = node("Transpose", [biases], "by_head", perm=[2, 0, 1])
        self.bias = node("Unsqueeze", [by_head, first], "all")

    def all(self):
        state = self.embeddings()
        if self.shape.buckets:
            self.relative_positions()
        for index in range(self.shape.layers):
            layer = f"{self.shape.names['layers']}.{index}."
            state = self.layer(state, layer, layer + "output" if index + 1 < self.shape.layers else OUTPUT)

    def words(self):
        """Adds the head for masked words: for each token, how well each word of the vocabulary would stand in its place."""
        shape, hidden, (dense, norm, bias, decoder) = self.shape, self.shape.hidden, self.shape.head
        matrix = self.graph.constant(dense + ".weight", transposed(self.weights.get(dense + ".weight", hidden, hidden), hidden), hidden, hidden)
        state = self.graph.node("MatMul", [OUTPUT, matrix], "words.dense")
        state = self.graph.node("BiasGelu", [state, self.vector(dense + ".bias", hidden)], "words.gelu", MICROSOFT)
        scale = [self.vector(norm + key, hidden) for key in (".weight", ".bias")]
        state = self.graph.node("LayerNormalization", [state, *scale], "words.norm", axis=-1, epsilon=shape.epsilon)
        table = "embeddings.word_embeddings.weight" if shape.tied else self.table(decoder, shape.vocab)
        state = self.graph.node("MatMul", [state, self.graph.node("Transpose", [table], "words.table", perm=[1, 0])], "words.product")
        self.graph.node("Add", [state, self.vector(bias, shape.vocab)], WORDS)


# --- The model folder

# What the parts of a layer are called.
BERT_NAMES = {
    "layers": "encoder.layer",
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": "attention.output.dense",
    "norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "last_norm": "output.LayerNorm",
}
MPNET_NAMES = dict(
    BERT_NAMES,
    qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    out="attention.attn.o",
    norm="attention.LayerNorm",
)
DISTILBERT_NAMES = {
    "layers": "transformer.layer",
    "qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "out": "attention.out_lin",
    "norm": "sa_layer_norm",
    "inner": "ffn.lin1",
    "outer": "ffn.lin2",
    "last_norm": "output_layer_norm",
}

# The head for masked words: its layer, its norm, the bias of each word, and what the words' table is where it is not that of
# the embeddings.
BERT_HEAD = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "cls.predictions.decoder.weight")
ROBERTA_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight")
DISTILBERT_HEAD = ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight")


class Shape:
    """What config.json says, in one form for all models."""

    def __init__(self, config):
        self.kind = config.get("model_type", "bert")
        distil = self.kind == "distilbert"
        if self.kind in ("bert", "roberta", "xlm-roberta", "camembert"):
            self.names, self.types = BERT_NAMES, config["type_vocab_size"]
        elif self.kind == "mpnet":
            self.names, self.types = MPNET_NAMES, 0
        elif distil:
            self.names, self.types = DISTILBERT_NAMES, 0
        else:
            raise Refused(f"config.json: model_type is {self.kind!r}; a model's own onnx/model.onnx can be used instead, if it has one")
        key = "activation" if distil else "hidden_act"
        for key, value in {key: "gelu", "position_embedding_type": "absolute"}.items():
            if config.get(key, value) != value:
                raise Refused(f"config.json: {key} is {config[key]!r}; only {value!r} is supported")
        self.vocab, self.positions = config["vocab_size"], config["max_position_embeddings"]
        self.hidden = config["dim" if distil else "hidden_size"]
        self.inner = config["hidden_dim" if distil else "intermediate_size"]
        self.layers = config["n_layers" if distil else "num_hidden_layers"]
        self.heads = config["n_heads" if distil else "num_attention_heads"]
        self.epsilon = 1e-12 if distil else float(config["layer_norm_eps"])
        # The first positions of some are those up to the padding's, which no token has.
        self.skipped = 0 if self.kind in ("bert", "distilbert") else config.get("pad_token_id", 1) + 1
        self.buckets = config.get("relative_attention_num_buckets", 32) if self.kind == "mpnet" else 0
        self.head = {"bert": BERT_HEAD, "distilbert": DISTILBERT_HEAD}.get(self.kind, ROBERTA_HEAD)
        self.tied = config.get("tie_word_embeddings", True)
        self.inputs = ["input_ids", "attention_mask"] + (["token_type_ids"] if self.types else [])


def model(folder, name, int8=False, words=False):
    """Returns the encoded ModelProto as a list of byte strings."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        shape = Shape(json.load(file))
    if int8 and shape.buckets:
        raise Refused(f"int8 is not supported for {shape.kind}: its attention has no form in 8 bits")
    graph = Graph()
    encoder = Encoder(graph, Weights(os.path.join(folder, "model.safetensors")), shape, int8)
    encoder.all()
    if words:
        encoder.words()

    body = graph.parts + text(2, "sentence_encoder")
    for input_name in shape.inputs:
        body += message(11, tensor_type(input_name, INT64, ["batch", "seq"]))
    body += message(12, tensor_type(*((WORDS, FLOAT, ["batch", "seq", shape.vocab]) if words else (OUTPUT, FLOAT, ["batch", "seq", shape.hidden]))))

    parts = number(1, IR_VERSION) + text(2, "embedsidecar") + message(7, body)
    parts += message(8, text(1, "") + number(2, ONNX_OPSET))
    parts += message(8, text(1, MICROSOFT) + number(2, MICROSOFT_OPSET))
    parts += message(14, text(1, "name") + text(2, name))
    if sum(len(part) for part in parts) > LARGEST_FILE:
        raise Refused("the graph would have more than 2 GB, which its format does not allow")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model_dir", help="folder with config.json and model.safetensors")
    parser.add_argument("out", help="ONNX file to write")
    parser.add_argument("--name", help="name of the model, kept in the file (default: the folder's name)")
    parser.add_argument("--int8", action="store_true", help="weights of 8 bits, with a scale for each output channel")
    parser.add_argument("--words", action="store_true", help="with the head for masked words, as sparse models need it")
    args = parser.parse_args()
    name = args.name or os.path.basename(os.path.abspath(args.model_dir))
    unfinished = args.out + ".tmp"
    try:
        parts = model(args.model_dir, name, args.int8, args.words)
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

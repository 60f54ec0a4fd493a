#!/usr/bin/env python3
"""Makes the folders of well-known models as they are published, with random weights, and their vectors by numpy.

    python3 -m venv venv && venv/bin/pip install numpy==2.3.5 tokenizers==0.23.3 && venv/bin/python make.py

layouts.json.gz has one object for each case of cases(): its files, what a user states, and its vectors, scores or refusal.
The table of docs/models.md is written from it. Weights of encoders are those of ../architectures, so numpy's encoder is
first compared with what transformers made of them. Graphs are written with the parts of tools/make_onnx.py.
"""

import base64
import gzip
import json
import pathlib
import sys
from array import array

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

here = pathlib.Path(__file__).parent
root = here.parents[4]
sys.path.insert(0, str(root / "tools"))
sys.dont_write_bytecode = True
import make_onnx as onnx  # noqa: E402

TEXTS = ["a", "Hello world", "the quick brown fox jumps over the lazy dog", "zz you are very long " * 8, "Größe, naïve \u4f60\u597d 42"]
QUERIES = ["hello", "where does the fox jump"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIMS, LIMIT = 8, 32  # of graphs; of most texts, instead of 512
random = np.random.default_rng(27)


# --- Tokenizers: 56 tokens, as the weights of ../architectures have, or those of a graph


def around(t, before, after, pair=None):
    """The tokens around a text, and what a pair looks like: two separators between, or types."""
    ids = [(s, t.token_to_id(s)) for s in dict.fromkeys(before + after)]
    single = " ".join([*before, "$A", *after])
    t.post_processor = processors.TemplateProcessing(single=single, pair=pair or f"{single} $B {' '.join(after)}", special_tokens=ids)
    return t


def leftovers(t):
    """As somebody used it last: to be ignored."""
    t.enable_truncation(6)
    t.enable_padding(length=12)
    return t


def word_piece(cls="[CLS]", pad="[PAD]", sep="[SEP]", lower=True, mask=None, pair="[CLS] $A [SEP] $B:1 [SEP]:1"):
    words = [cls, pad, sep, "[UNK]", *LETTERS, *("##" + c for c in LETTERS)]
    if mask:
        words[-1] = mask
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=None if lower else False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens([cls, pad, sep, "[UNK]"])
    if mask:
        t.add_special_tokens([AddedToken(mask, lstrip=True, special=True)])
    return around(t, [cls], [sep], pair)


def mpnet():
    return word_piece("<s>", "<pad>", "</s>", mask="<mask>", pair="<s> $A </s> </s> $B </s>")


def unigram(special, before, after, pair=None):
    with gzip.open(here.parents[2] / "tokenizers/testdata/unigram.json.gz") as file:
        made = json.load(file)
    pieces = special + ["\u2581", *LETTERS, *("\u2581" + c for c in "abcdefghijklmnopqrstuvw")]
    unknown = special.index("<unk>" if "<unk>" in special else "[UNK]")
    made["model"] |= {"vocab": [[p, -1.0 - i / 16] for i, p in enumerate(pieces)], "unk_id": unknown}
    made["truncation"] = made["padding"] = made["post_processor"] = None
    made["added_tokens"] = []
    t = Tokenizer.from_str(json.dumps(made))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return around(t, before, after, pair)


def xlmr():
    t = unigram(["<s>", "<pad>", "</s>", "<unk>"], ["<s>"], ["</s>"], "<s> $A </s> </s> $B </s>")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return t


def t5():
    return unigram(["<pad>", "</s>", "<unk>"], [], ["</s>"])


def deberta():
    return unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], ["[CLS]"], ["[SEP]"], "[CLS] $A [SEP] $B:1 [SEP]:1")


def byte_level(specials, before, after, split=None, pair=None):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("\u0120", c) for c in "abdjlqtvw"] + [("o", "r"), ("h", "e"), ("\u0120t", "he")]
    tokens = specials + alphabet + [a + b for a, b in merges]
    t = Tokenizer(models.BPE({w: i for i, w in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split:
        t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(specials)
    return around(t, before, after, pair)


def modern():
    return byte_level(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"], ["[CLS]"], ["[SEP]"])


def qwen():
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return byte_level(["<|endoftext|>", "<|im_start|>"], [], ["<|endoftext|>"], split)


def gemma():
    """Bytes for what it does not know, and a token of an image that no text has, beyond the model's table."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", *LETTERS, "\u2581a", "he"]
    t = Tokenizer(models.BPE({w: i for i, w in enumerate(tokens)}, [("\u2581", "a"), ("h", "e")], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>", "<image_soft_token>"])
    return around(t, ["<bos>"], ["<eos>"])


def clip():
    marks = ["<|startoftext|>", "<|endoftext|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = alphabet + [c + "</w>" for c in alphabet] + marks
    t = Tokenizer(models.BPE({w: i for i, w in enumerate(tokens)}, [], unk_token=marks[1], end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.add_special_tokens(marks)
    t.post_processor = processors.RobertaProcessing((marks[1], t.token_to_id(marks[1])), (marks[0], t.token_to_id(marks[0])),
                                                    trim_offsets=False, add_prefix_space=False)
    return t


# --- Networks by numpy


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ERF = np.vectorize(__import__("math").erf)


class Encoder:
    """A BERT, XLM-RoBERTa, DistilBERT or MPNet of ../architectures."""

    def __init__(self, name):
        folder = here.parent / "architectures" / name
        self.config = json.loads((folder / "config.json").read_text())
        self.shape, self.weights = onnx.Shape(self.config), onnx.Weights(str(folder / "model.safetensors"))

    def get(self, name, *shape):
        return np.array(self.weights.get(name, *shape), np.float64).reshape(shape)

    def norm(self, x, name):
        size = self.shape.hidden
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.shape.epsilon)
        return x * self.get(name + ".weight", size) + self.get(name + ".bias", size)

    def linear(self, x, name, out):
        return x @ self.get(name + ".weight", out, x.shape[-1]).T + self.get(name + ".bias", out)

    def tokens(self, ids, _types, _kind):
        s, n = self.shape, len(ids)
        x = self.get("embeddings.word_embeddings.weight", s.vocab, s.hidden)[ids]
        x = x + self.get("embeddings.position_embeddings.weight", s.positions, s.hidden)[s.skipped:][:n]
        if s.types:
            x = x + self.get("embeddings.token_type_embeddings.weight", s.types, s.hidden)[0]
        x, bias = self.norm(x, "embeddings.LayerNorm"), 0
        if s.buckets:
            table = self.get("encoder.relative_attention_bias.weight", s.buckets, s.heads)
            bias = np.array([[table[onnx.bucket(b - a, s.buckets)] for b in range(n)] for a in range(n)]).transpose(2, 0, 1)
        for layer in range(s.layers):
            at = f"{s.names['layers']}.{layer}."
            q, k, v = (self.linear(x, at + part, s.hidden).reshape(n, s.heads, -1).transpose(1, 0, 2) for part in s.names["qkv"])
            mixed = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]) + bias) @ v
            out = self.linear(mixed.transpose(1, 0, 2).reshape(n, -1), at + s.names["out"], s.hidden)
            x = self.norm(x + out, at + s.names["norm"])
            inner = self.linear(x, at + s.names["inner"], s.inner)
            inner = inner * (1 + ERF(inner / np.sqrt(2))) / 2
            x = self.norm(x + self.linear(inner, at + s.names["outer"], s.hidden), at + s.names["last_norm"])
        return x


for checked in ("bert", "bert_fp16", "xlm-roberta", "distilbert", "mpnet"):
    wanted = json.loads((here.parent / "architectures" / checked / "vectors.json").read_text())
    letters = word_piece()
    for sample, vector in zip(wanted["texts"], wanted["vectors"]):
        got = Encoder(checked).tokens(letters.encode(sample).ids[:78], None, None).mean(0)
        assert np.abs(got - vector).max() < 1e-5, (checked, sample)


def exact(*shape, scale=0.6):
    return np.round(random.normal(size=shape) * scale * 64) / 64  # little to store


class Masked(Encoder):
    """An encoder with a head for masked words, whose weights are rounded: little to store, too."""

    def __init__(self, name):
        super().__init__(name)
        self.config = self.config | {"architectures": [{"bert": "BertForMaskedLM", "distilbert": "DistilBertForMaskedLM"}.get(name, "RobertaForMaskedLM")]}
        size, (dense, norm, bias, _) = self.shape.hidden, self.shape.head
        self.head = {dense + ".weight": exact(size, size), norm + ".weight": 1 + exact(size, scale=0.1), bias: exact(self.shape.vocab, scale=0.2)}
        self.head |= {at + ".bias": exact(size, scale=0.2) for at in (dense, norm)}

    def get(self, name, *shape):
        return self.head[name] if name in self.head else np.round(super().get(name, *shape) * 256) / 256

    def words(self, x):
        size, (dense, norm, bias, _) = self.shape.hidden, self.shape.head
        x = self.linear(x, dense, size)
        x = self.norm(x * (1 + ERF(x / np.sqrt(2))) / 2, norm)
        return x @ self.get("embeddings.word_embeddings.weight", self.shape.vocab, size).T + self.head[bias]

    def published(self):
        tensors = {self.shape.kind + "." + n: self.get(n, *e["shape"]) for n, e in self.weights._header.items() if "pooler" not in n}
        return {"config.json": self.config, "model.safetensors": safetensors(tensors | self.head)}


class Net:
    """A graph with the inputs and outputs of a published one: one layer of attention over tokens, types, places and task.

    outputs are pairs of a name and what it gives: tokens, mean, first, words, score or past.
    """

    def __init__(self, t, outputs, inputs="input_ids attention_mask", short=False, half=False, external="", task=(), past=0, labels=1, vocab=0):
        self.vocab, self.outputs, self.inputs = vocab or t.get_vocab_size(), outputs, inputs.split()
        self.short, self.half, self.external, self.task, self.past, self.labels = short, half, external, task, past, labels
        self.table, self.types, self.tasks, self.place = exact(self.vocab, DIMS), exact(2, DIMS, scale=0.3), exact(5, DIMS), exact(DIMS, scale=0.05)
        self.head = exact(DIMS, labels, scale=1)

    def tokens(self, ids, types, kind):
        x = self.table[ids]
        if "token_type_ids" in self.inputs:
            x = x + self.types[types]
        if "position_ids" in self.inputs:
            x = x + np.arange(len(ids))[:, None] * self.place
        if self.task:
            x = x + self.tasks[self.task[kind]]
        x = softmax(x @ x.T) @ x
        return x.astype(np.float16).astype(np.float64) if self.half else x

    def words(self, x):
        return x @ self.table.T

    def score(self, ids, types):
        return np.tanh(self.tokens(ids, types, 0)[0]) @ self.head

    def files(self, name):
        g, data = onnx.Graph(), bytearray()
        whole = onnx.INT32 if self.short else onnx.INT64

        def constant(label, numbers, kind="f"):
            flat = array(kind, np.asarray(numbers).flatten().tolist())
            if not self.external or kind != "f":
                return g.constant(label, flat, *np.shape(numbers), kind=onnx.FLOAT if kind == "f" else onnx.INT64)
            entry = {"location": self.external, "offset": str(len(data)), "length": str(4 * len(flat))}
            data.extend(flat.tobytes())
            tensor = [p for dim in np.shape(numbers) for p in onnx.number(1, dim)] + onnx.number(2, onnx.FLOAT) + onnx.text(8, label)
            for key, value in entry.items():
                tensor += onnx.message(13, onnx.text(1, key) + onnx.text(2, value))
            g.parts += onnx.message(5, tensor + onnx.number(14, 1))
            return label

        x = g.node("Gather", [constant("table", self.table), "input_ids"], "words")
        middle = constant("middle", [1], "q")
        last = constant("last", [2], "q")
        if "token_type_ids" in self.inputs:
            x = g.node("Add", [x, g.node("Gather", [constant("types", self.types), "token_type_ids"], "sides")], "typed")
        if "position_ids" in self.inputs:
            at = g.node("Unsqueeze", [g.node("Cast", ["position_ids"], "at", to=onnx.FLOAT), last], "places")
            x = g.node("Add", [x, g.node("Mul", [at, constant("place", self.place)], "moved")], "placed")
        if "task_id" in self.inputs:
            x = g.node("Add", [x, g.node("Gather", [constant("tasks", self.tasks), "task_id"], "task")], "tasked")
        scores = g.node("MatMul", [x, g.node("Transpose", [x], "turned", perm=[0, 2, 1])], "scores")
        if "attention_mask" in self.inputs:
            mask = g.node("Cast", ["attention_mask"], "mask", to=onnx.FLOAT)
            below = g.node("Mul", [g.node("Sub", [mask, constant("one", [1.0])], "without"), constant("far", [1e9])], "below")
            scores = g.node("Add", [scores, g.node("Unsqueeze", [below, middle], "hidden")], "masked")
        h = g.node("MatMul", [g.node("Softmax", [scores], "attention", axis=2), x], "mixed")
        texts, tokens, parts = "batch", "seq", []
        for label, kind in self.outputs:
            shape, out = [texts, tokens, DIMS], h
            if kind == "mean":
                wide = g.node("Unsqueeze", [mask, last], label + "_wide")
                total = g.node("ReduceSum", [g.node("Mul", [h, wide], label + "_kept"), middle], label + "_sum", keepdims=0)
                v = g.node("Div", [total, g.node("ReduceSum", [mask, middle], label + "_count", keepdims=1)], label + "_mean")
                out, shape = g.node("LpNormalization", [v], label + "_unit", axis=1, p=2), [texts, DIMS]
            elif kind in ("first", "score"):
                begin = g.node("Gather", [h, constant(label + "_zero", 0, "q")], label + "_begin", axis=1)
                out, shape = g.node("Tanh", [begin], label + "_pooled"), [texts, DIMS]
                if kind == "score":
                    out, shape = g.node("MatMul", [out, constant("head", self.head)], label + "_number"), [texts, self.labels]
            elif kind == "words":
                out, shape = g.node("MatMul", [h, constant(label + "_turned", self.table.T)], label + "_words"), [texts, tokens, self.vocab]
            elif kind == "past":
                out, shape = label.replace("present", "past_key_values"), [texts, 2, "past", 4]
            half = self.half and kind != "past"
            g.node("Cast" if half else "Identity", [out], label, **({"to": 10} if half else {}))
            parts += onnx.message(12, onnx.tensor_type(label, 10 if half else onnx.FLOAT, shape))
        for label in self.inputs:
            parts += onnx.message(11, onnx.tensor_type(label, whole, [] if label == "task_id" else [texts, tokens]))
        for layer in range(self.past):
            for key in ("key", "value"):
                parts += onnx.message(11, onnx.tensor_type(f"past_key_values.{layer}.{key}", onnx.FLOAT, [texts, 2, "past", 4]))
        body = g.parts + parts + onnx.text(2, "main_graph")
        made = onnx.number(1, 8) + onnx.text(2, "pytorch") + onnx.message(7, body) + onnx.message(8, onnx.text(1, "") + onnx.number(2, 17))
        files = {name: b"".join(made)}
        if data:
            files[str(pathlib.PurePosixPath(name).parent / self.external)] = bytes(data)
        return files


# --- Files around the weights


def sentence(pooling, limit=LIMIT, normalize=True, new=False, dense=(), prompts=None, default=None, limits="sentence_bert_config.json", transformer=None):
    """The files of sentence-transformers. dense are triples of a folder, a layer and whether it is a tanh."""
    base = "sentence_transformers.models."
    kinds = {k: base + k for k in ("Transformer", "Pooling", "Dense", "Normalize")}
    kinds["Transformer"] = transformer or kinds["Transformer"]
    if new:  # as of version 5
        kinds = {"Transformer": "sentence_transformers.base.modules.transformer.Transformer",
                 "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
                 "Dense": "sentence_transformers.base.modules.dense.Dense",
                 "Normalize": "sentence_transformers.sentence_transformer.modules.normalize.Normalize"}
    paths = [("Transformer", ""), ("Pooling", "1_Pooling"), *(("Dense", d[0]) for d in dense)]
    if normalize:
        paths.append(("Normalize", f"{len(paths)}_Normalize"))
    files = {"modules.json": [{"idx": i, "name": str(i), "path": p, "type": kinds[k]} for i, (k, p) in enumerate(paths)]}
    if new:
        files["1_Pooling/config.json"] = {"embedding_dimension": DIMS, "pooling_mode": pooling.removesuffix("_tokens").removesuffix("_token"), "include_prompt": True}
    else:
        modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
        files["1_Pooling/config.json"] = {"word_embedding_dimension": DIMS} | {"pooling_mode_" + m: m == pooling for m in modes}
    if limit:
        files[limits] = {"max_seq_length": limit, "do_lower_case": False}
    for path, layer, tanh in dense:
        out, width = layer["linear.weight"].shape
        activation = "torch.nn.modules.activation.Tanh" if tanh else "torch.nn.modules.linear.Identity"
        files[path + "/config.json"] = {"in_features": width, "out_features": out, "bias": "linear.bias" in layer, "activation_function": activation}
        files[path + "/model.safetensors"] = safetensors(layer)
    files["config_sentence_transformers.json"] = {"__version__": {"sentence_transformers": "5.1.0"}, "prompts": prompts or {}, "default_prompt_name": default}
    return files


def safetensors(tensors):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, x in tensors.items():
        raw = x.astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


def layer(out, width, bias):
    made = {"linear.weight": exact(out, width, scale=0.4)}
    return made | ({"linear.bias": exact(out, scale=0.2)} if bias else {})


def config(kind, net=None, **more):
    base = {"architectures": [more.pop("architecture", "BertModel")], "model_type": kind}
    if net:
        base |= {"vocab_size": net.vocab, "hidden_size": DIMS, "num_attention_heads": 2, "max_position_embeddings": 512}
    return base | more


def tokens(t, kind, **more):
    return {"tokenizer.json": json.loads(leftovers(Tokenizer.from_str(t.to_str())).to_str()),
            "tokenizer_config.json": {"tokenizer_class": kind, "model_max_length": 512} | more, "special_tokens_map.json": {}}


# --- What a text's vector is


def pooled(x, how):
    n = len(x)
    return {
        "mean": lambda: x.mean(0), "cls": lambda: x[0], "last": lambda: x[-1], "max": lambda: x.max(0),
        "weightedmean": lambda: (x * np.arange(1, n + 1)[:, None]).sum(0) / (n * (n + 1) / 2),
    }[how]()


def unit(v):
    return v / np.linalg.norm(v)


def norm(v):
    return (v - v.mean()) / np.sqrt(v.var() + 1e-5)


def made(case, text, kind):
    """The vector of a document (kind 0) or a query (1)."""
    t = Tokenizer.from_str(case["t"].to_str())
    t.no_padding()
    t.enable_truncation(case["limit"], direction="right")
    if kind and case["idf"] is not None:
        ids = sorted(set(t.encode(text, add_special_tokens=False).ids))
        return {str(i): float(case["idf"][i]) for i in ids if case["idf"][i]}
    found = t.encode(case["prefix"][kind] + text)
    x = case["net"].tokens(found.ids, found.type_ids, kind)
    if case["pool"] == "splade":
        largest = np.log1p(np.maximum(case["net"].words(x).max(0), 0))
        largest = np.log1p(largest) if case["twice"] else largest
        return {str(i): round(float(v), 7) for i, v in enumerate(largest) if v > 0}
    v = np.tanh(x[0]) if case["pool"] == "pooler" else pooled(x, case["pool"])
    for _, dense, tanh in case["dense"]:
        v = dense["linear.weight"] @ v + dense.get("linear.bias", 0)
        v = np.tanh(v) if tanh else v
    if case["state"].get("layer_norm"):
        v = norm(v)
    v = v[: case["state"].get("dims", len(v))]
    return [round(float(n), 7) for n in (unit(v) if case["normalize"] else v)]


def scores(case):
    t = Tokenizer.from_str(case["t"].to_str())
    t.no_padding()
    t.enable_truncation(case["limit"], strategy="longest_first", direction="right")
    found = [t.encode(QUERIES[1], text) for text in TEXTS]
    numbers = [float(case["net"].score(e.ids, e.type_ids)[0]) for e in found]
    return [n if case["raw"] else 1 / (1 + np.exp(-n)) for n in numbers]


CASES = []


def case(hub, licence, params, files, t=None, net=None, weights="", pool="mean", normalize=True, limit=LIMIT, prefix=("", ""), dense=(), state=None,
         refused=(), reason="its files hold no ONNX", rerank=False, raw=False, card=False, twice=False, idf=None, graph="onnx/model.onnx", also="", note="", kind="text"):
    c = dict(hub=hub, licence=licence, params=params, also=also, note=note, state=state or {}, refused=list(refused), limit=limit, card=card, kind=kind,
             reason=reason if refused else "")
    c |= dict(t=t, net=net or (Encoder(weights) if weights else None), pool=pool, normalize=normalize, prefix=prefix, dense=dense, raw=raw, twice=twice, idf=idf)
    if isinstance(net, Net):
        files = files | net.files(graph)
    elif isinstance(net, Masked):
        files = net.published() | files
    elif weights:
        files = {"config.json": Encoder(weights).config} | files
    if not refused:
        if rerank:
            c["scores"] = scores(c)
        else:
            c["documents"], c["queries"] = [made(c, x, 0) for x in TEXTS], [made(c, x, 1) for x in QUERIES]
    c["weights"] = weights
    c["files"] = {k: v if isinstance(v, str) else json.dumps(v) for k, v in files.items() if not isinstance(v, bytes)}
    c["binary"] = {k: base64.b64encode(v).decode() for k, v in files.items() if isinstance(v, bytes)}
    for key in ("t", "net", "dense", "raw", "twice", "idf"):
        c.pop(key)
    CASES.append(c)


def static(hub, licence, params, layout, **more):
    """A static model, whose layout is among those that the plugin static is tried with."""
    CASES.append(dict(hub=hub, licence=licence, params=params, static=layout, kind="static", also="", note="", state={}, refused=[]) | more)


from cases import cases  # noqa: E402

cases(sys.modules["__main__"])
with open(here / "layouts.json.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as packed:
    packed.write(json.dumps({"texts": TEXTS, "queries": QUERIES, "cases": CASES}, indent=0).encode())
print(len(CASES), "layouts")

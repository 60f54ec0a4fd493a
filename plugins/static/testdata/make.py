#!/usr/bin/env python3
"""Makes models of the layouts in which static models are published, with random weights, and their vectors by numpy.

    python3 -m venv venv && venv/bin/pip install numpy==2.3.5 tokenizers==0.23.3
    venv/bin/python make.py

vectors.json has, for each folder of layouts/, a list with the vector of each text, or null where there is no token.
"""

import gzip
import json
import pathlib
import shutil

import numpy as np
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

here = pathlib.Path(__file__).parent
random = np.random.default_rng(27)
DIMS = 8
TEXTS = ["a house by the river", "The HOUSE, by the sea!", "houses and rivers", "river \u4f60\u597d caf\u00e9", "\u4f60\u597d", "",
         "the the the the the the the the the the the the", "[CLS] house", "unheardof words by the house"]


def word_piece():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "by", "and", "house", "river", "sea", "##s", "cafe", ",", "!", "words"]
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.add_special_tokens(words[:5])
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram():
    with gzip.open(here.parent.parent / "onnx/tokenizers/testdata/unigram.json.gz") as file:
        made = json.load(file)
    made["model"]["vocab"] = made["model"]["vocab"][:200]
    made["truncation"] = made["padding"] = None
    return Tokenizer.from_str(json.dumps(made))


def save(folder, tensors):
    header, body = {}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)


def stored(x, kind):
    """Returns a tensor as a file has it, and what its numbers are."""
    if kind == "BF16":
        bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return (kind, list(x.shape), bits.tobytes()), (bits.astype(np.uint32) << 16).view(np.float32)
    x = x.astype({"F32": np.float32, "F64": np.float64, "F16": np.float16, "I8": np.int8, "I64": np.int64, "I32": np.int32}[kind])
    return (kind, list(x.shape), x.tobytes()), x


def layout(name, tokenizer, kind="F32", table="embeddings", config=None, modules=None, inside="", weights=None, mapping=None):
    folder = here / "layouts" / name
    files = folder / inside
    files.mkdir(parents=True)
    tokenizer.save(str(files / "tokenizer.json"), pretty=False)
    rows = 7 if mapping else tokenizer.get_vocab_size()
    numbers = random.normal(size=(rows, DIMS)) * (40 if kind == "I8" else 1)
    tensors = {}
    tensors[table], numbers = stored(numbers, kind)
    if weights:
        tensors["weights"], weights = stored(random.uniform(0.1, 1, tokenizer.get_vocab_size()), weights)
    if mapping:
        tensors["mapping"], mapping = stored(random.integers(0, rows, tokenizer.get_vocab_size()), mapping)
    save(files, tensors)
    for file, content in {"config.json": config, "modules.json": modules}.items():
        if content is not None:
            (folder / file).write_text(json.dumps(content))
    if config is None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {}, "default_prompt_name": None}))

    def vector(text):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if config is not None:
            limit = config.get("max_length", 512)
            unknown = tokenizer.token_to_id("[UNK]" if tokenizer.token_to_id("[UNK]") is not None else "<unk>")
            ids = [i for i in ids[:limit] if i != unknown]
        if not ids:
            return None
        x = numbers[mapping[ids] if mapping is not None else ids].astype(np.float64)
        if weights is not None:
            x = x * weights[ids][:, None]
        x = x.mean(axis=0)
        normal = config["normalize"] if config is not None else len(modules) > 1
        return list(map(float, x / np.linalg.norm(x) if normal else x))

    return [vector(text) for text in TEXTS]


def module(kind, path):
    return {"path": path, "type": "sentence_transformers.models." + kind}


shutil.rmtree(here / "layouts", ignore_errors=True)
m2v = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": DIMS, "seq_length": 1000000}
root = [module("StaticEmbedding", "."), module("Normalize", "1_Normalize")]
vectors = {
    "model2vec": layout("model2vec", word_piece(), config=m2v | {"normalize": True}, modules=root),
    "model2vec_f16": layout("model2vec_f16", word_piece(), "F16", config=m2v | {"normalize": False, "max_length": 4}),
    "model2vec_f64": layout("model2vec_f64", word_piece(), "F64", config=m2v | {"normalize": True, "max_length": None}),
    "model2vec_bf16": layout("model2vec_bf16", word_piece(), "BF16", config={"normalize": True, "apply_pca": 8}),
    "model2vec_int8": layout("model2vec_int8", word_piece(), "I8", config=m2v | {"normalize": True}, weights="F32", mapping="I64"),
    "model2vec_int8_f16": layout("model2vec_int8_f16", word_piece(), "I8", config=m2v | {"normalize": False}, weights="F16", mapping="I32"),
    "model2vec_unigram": layout("model2vec_unigram", unigram(), config=m2v | {"normalize": True}, modules=root),
    "static": layout("static", word_piece(), table="embedding.weight", modules=[module("StaticEmbedding", "")]),
    "static_nested": layout("static_nested", word_piece(), table="embedding.weight", inside="0_StaticEmbedding",
                            modules=[module("StaticEmbedding", "0_StaticEmbedding"), module("Normalize", "1_Normalize")]),
}
(here / "vectors.json").write_text(json.dumps({"texts": TEXTS, "vectors": vectors}, indent=1))

#!/usr/bin/env python3
"""Makes the tokenizers of these tests and what the reference library makes of the test texts.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.1
    venv/bin/python make.py

Each NAME.json.gz is a tokenizer trained on the test texts themselves. Each NAME.sums.gz has a line for each of the texts of
../../wordpiece/testdata/tokens.jsonl.gz: the number of tokens and the first 16 digits of the sha256 of the ids, special
tokens included, written in decimal with spaces between.
"""

import gzip
import hashlib
import io
import json
import pathlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
with gzip.open(here.parent.parent / "wordpiece/testdata/tokens.jsonl.gz", "rt") as file:
    texts = [json.loads(line)["text"] for line in file]

VOCAB = 1200
# Unigram and WordPiece begin with an alphabet: that of these texts. What else is in the others is unknown to them.
common = [text for text in texts if all(ord(c) < 0x250 for c in text)]
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_bpe():
    """As RoBERTa's: spaces belong to the word behind them, <s> text </s>."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)]
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return t


def regex_bpe():
    """As the large language models': composed text, split by an expression with look-ahead, an end token behind it."""
    t = Tokenizer(models.BPE(byte_fallback=False))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A <|end|>", special_tokens=[("<|end|>", 0)])
    return t


def unigram():
    """As XLM-RoBERTa's: a compiled table of normalisations, words that begin with a mark, <s> text </s>."""
    model = io.BytesIO()
    rules = here / "rules.tsv"
    rules.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in [
        ("\ufb01", "fi"), ("\u00a0", " "), ("\u3000", " "), ("\uff21", "A"), ("e\u0301", "\u00e9"), ("\u2460", "1"), ("\t", " "), ("\n", " ")]))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a few words are enough, because only the table is taken"] * 50), model_writer=model, vocab_size=25,
        normalization_rule_tsv=str(rules), hard_vocab_limit=False, minloglevel=2)
    rules.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.train_from_iterator(common, trainers.UnigramTrainer(
        vocab_size=VOCAB, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return t


def cased():
    """As cased BERT models': neither small letters nor accents removed."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(common, trainers.WordPieceTrainer(
        vocab_size=VOCAB, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def write(name, lines):
    with open(here / name, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
        file.write(lines.encode())


for name, make in {"byte_bpe": byte_bpe, "regex_bpe": regex_bpe, "unigram": unigram, "cased": cased}.items():
    content = make().to_str()
    t = Tokenizer.from_str(content)  # one that was just trained breaks ties between equal scores in another way
    t.enable_truncation(7)  # left-overs of somebody's use, to be ignored
    t.enable_padding(length=9)
    write(f"{name}.json.gz", t.to_str())
    t.no_truncation()
    t.no_padding()
    sums = ""
    for text in texts:
        ids = t.encode(text).ids
        sums += f"{len(ids)} {hashlib.sha256(' '.join(map(str, ids)).encode()).hexdigest()[:16]}\n"
    write(f"{name}.sums.gz", sums)
    print(name, t.get_vocab_size(), "tokens in the vocabulary")

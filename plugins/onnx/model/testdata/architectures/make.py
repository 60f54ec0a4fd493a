#!/usr/bin/env python3
"""Makes small models of each architecture with random weights, and what transformers makes of texts with them.

    venv/bin/pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 && venv/bin/python make.py

Each folder is a model as it would be published; vectors.json has the means of the last hidden states of some texts, which run
one by one. The tokenizer knows small letters.
"""

import json
import pathlib
import string

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

here = pathlib.Path(__file__).parent
TEXTS = ["a", "hello world", "the quick brown fox jumps over the lazy dog", "zz " * 30]
VOCAB = {token: index for index, token in enumerate(
    ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase)])}

tokenizer = Tokenizer(models.WordPiece(VOCAB, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)])

COMMON = dict(vocab_size=len(VOCAB), hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
              max_position_embeddings=80, pad_token_id=1, initializer_range=0.5)
CONFIGS = {
    "bert": (transformers.BertConfig(**COMMON), transformers.BertModel, torch.float32),
    "bert_fp16": (transformers.BertConfig(**COMMON), transformers.BertModel, torch.float16),
    "bert_bf16": (transformers.BertConfig(**COMMON), transformers.BertModel, torch.bfloat16),
    "roberta": (transformers.RobertaConfig(**COMMON, type_vocab_size=1), transformers.RobertaModel, torch.float32),
    "xlm-roberta": (transformers.XLMRobertaConfig(**COMMON, type_vocab_size=1), transformers.XLMRobertaModel, torch.float32),
    "camembert": (transformers.CamembertConfig(**COMMON, type_vocab_size=1), transformers.CamembertModel, torch.float32),
    "mpnet": (transformers.MPNetConfig(**COMMON), transformers.MPNetModel, torch.float32),
    "distilbert": (transformers.DistilBertConfig(
        vocab_size=len(VOCAB), dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=80, pad_token_id=1,
        initializer_range=0.5), transformers.DistilBertModel, torch.float32),
}
for name, (config, kind, dtype) in CONFIGS.items():
    torch.manual_seed(len(name))
    model = kind(config).eval()
    with torch.no_grad():
        for key, value in model.named_parameters():  # biases and norms are zeros and ones otherwise
            if key.endswith("bias") or "LayerNorm" in key or "layer_norm" in key:
                value.add_(torch.randn_like(value) * 0.2)
    model = model.to(dtype)
    folder = here / name
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    model = model.to(torch.float32)
    vectors = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids[:78]])
        with torch.no_grad():
            states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        vectors.append([round(x, 6) for x in states[0].mean(0).tolist()])
    (folder / "vectors.json").write_text(json.dumps({"texts": TEXTS, "vectors": vectors}))
    print(name, sum(p.numel() for p in model.parameters()), "weights")

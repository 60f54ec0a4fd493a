"""Write an embedder plugin for embedsidecar in Python.

The short form is a function from texts to vectors: see serve_function. The long form is an object with two methods: see Embedder.

    class Mine:
        def describe(self):
            return Info(name="mine", version="1.0.0", models=[Model(name="m", fingerprint="sha256 of the weights", dims=384)])

        def embed(self, model, kind, texts):
            return vectors  # in the order of texts: floats, Answers, or one array of shape (len(texts), dims)

    serve(Mine())

The optional method tokenize makes the sidecar cut long texts by the model's own tokens: see Tokens. Rerankers need the
method rerank: see Embedder.
"""

from . import _life

if _life.started_by_host():
    _life.claim_stdout()

from ._server import serve  # noqa: E402
from ._types import (  # noqa: E402
    DOCUMENT,
    QUERY,
    Again,
    Answer,
    Embedder,
    Info,
    Misconfigured,
    Model,
    OutOfResources,
    TextError,
    Tokens,
    serve_function,
)

__all__ = [
    "DOCUMENT",
    "QUERY",
    "Again",
    "Answer",
    "Embedder",
    "Info",
    "Misconfigured",
    "Model",
    "OutOfResources",
    "TextError",
    "Tokens",
    "serve",
    "serve_function",
]

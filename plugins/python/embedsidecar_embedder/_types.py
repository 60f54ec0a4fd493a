"""The types for authors of plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NoReturn, Optional, Protocol, Sequence, Union

DOCUMENT = "document"  # what is searched
QUERY = "query"  # what is searched for


@dataclass(frozen=True)
class Model:
    """One of a plugin's models. The contract (plugins/proto/embedder.proto) describes each field."""

    name: str
    fingerprint: str  # a hash over everything that can change a vector; 1 to 256 printable ASCII characters
    dims: int  # width of every vector, 1 to 16,000; of a sparse model its vocabulary's size, up to 16,777,216
    max_tokens: int = 0  # longer texts are cut; 0: not known
    symmetric: bool = True  # documents and queries get the same vector for the same text
    max_batch: int = 256  # limit of texts in one call; 0: none
    max_batch_bytes: int = 8 << 20  # limit of bytes of text in one call; 0: none
    deterministic: bool = False  # the same text always gives the same vector, bit for bit, whatever else is in the batch
    sparse: bool = False  # vectors are dicts from index (from 0) to number, with 1 to 16,000 non-zero numbers
    reranks: bool = False  # a reranker, with scores (method rerank) instead of vectors; dims must be 1


@dataclass(frozen=True)
class Info:
    """Describes a plugin and its models."""

    name: str
    version: str
    models: Sequence[Model]


@dataclass
class TextError:
    """The error of one text. The message must not contain the text or a part of it."""

    kind: str  # "invalid", "retry_later", "too_long" or "refused"
    message: str = ""
    delay: float = 0  # seconds, with "retry_later"; 0: the host decides


@dataclass
class Answer:
    """The answer for one text: a vector, empty, or an error."""

    vector: Union[Sequence[float], Mapping[int, float], None] = None  # a mapping for a sparse model
    empty: bool = False  # the text has no tokens except special ones
    truncated: bool = False  # the text was longer than max_tokens and cut
    tokens: int = 0  # tokens the model saw; 0: unknown
    error: Optional[TextError] = field(default=None)


@dataclass
class Tokens:
    """The ends of the tokens of some texts, as returned by the method tokenize(model, texts).

    For each text in order, ends has the index into the str after each of its tokens, so that text[:end] ends with the token: the
    end of an offset in transformers. The package converts it to the contract's byte offsets. It covers all tokens of a text of any
    length, but not those that the model adds: around is their number, including the tokens of a prefix. A text of n tokens is read
    whole if n + around <= max_tokens. A model without this information raises NotImplementedError.
    """

    ends: Sequence[Sequence[int]]  # not decreasing, none beyond its text
    around: int = 0


class _CallError(Exception):
    def __init__(self, message: str, delay: float = 0) -> None:
        super().__init__(message)
        self.delay = delay


class Again(_CallError):
    """The whole call failed and may succeed later, after delay seconds."""


class OutOfResources(_CallError):
    """The whole call failed due to memory, quota or a rate limit: retry later with fewer texts."""


class Misconfigured(_CallError):
    """The whole call fails until a user changes something."""


class Embedder(Protocol):
    """Implemented by the author.

    Two methods are optional: tokenize(model, texts) -> Tokens; and rerank(model, query, texts), which returns one score for each
    text in order, the larger the better. Models with reranks need rerank.
    """

    def describe(self) -> Info:
        """Called before the first text. It may load models."""

    def embed(self, model: str, kind: str, texts: Sequence[str]) -> Any:
        """Returns one answer for each text, in order: Answers, sequences of floats, or one array of shape (len(texts), dims).

        For a sparse model: Answers, or dicts from index to number.
        """


class _Function:
    def __init__(self, function: Callable[..., Any], info: Info, takes_kind: bool, tokenize: Optional[Callable[..., Any]]) -> None:
        self._function, self._info, self._takes_kind = function, info, takes_kind
        if tokenize is not None:
            self.tokenize = lambda model, texts: tokenize(texts)

    def describe(self) -> Info:
        return self._info

    def embed(self, model: str, kind: str, texts: Sequence[str]) -> Any:
        if self._takes_kind:
            return self._function(texts, kind)
        return self._function(texts)


def serve_function(
    function: Callable[..., Any],
    *,
    name: str,
    version: str,
    dims: int,
    fingerprint: str,
    model: str = "",
    symmetric: bool = True,
    concurrency: int = 1,
    tokenize: Optional[Callable[..., Tokens]] = None,
    **limits: Any,
) -> NoReturn:
    """Serves a function from a list of texts to their vectors, as a plugin with one model.

    With symmetric=False the function gets the kind, "document" or "query", as its second argument. tokenize is a function from a
    list of texts to Tokens; without it the sidecar estimates the tokens of long texts. Further arguments are those of
    Model: max_tokens, max_batch, max_batch_bytes, deterministic, sparse.
    """
    from ._server import serve

    info = Info(name, version, [Model(name=model or name, fingerprint=fingerprint, dims=dims, symmetric=symmetric, **limits)])
    serve(_Function(function, info, not symmetric, tokenize), concurrency=concurrency)

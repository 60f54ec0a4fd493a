"""What an author of a plugin sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NoReturn, Optional, Protocol, Sequence, Union

DOCUMENT = "document"  # what is searched
QUERY = "query"  # what is searched for


@dataclass(frozen=True)
class Model:
    """One of the models a plugin offers. The contract (plugins/proto/embedder.proto) tells more of each field."""

    name: str
    fingerprint: str  # a hash over everything that can change a vector; 1 to 256 printable ASCII characters
    dims: int  # width of every vector, 1 to 16,000; of a sparse model its vocabulary's size, up to 16,777,216
    max_tokens: int = 0  # longer texts are cut; 0: not known
    symmetric: bool = True  # documents and queries get the same vector for the same text
    max_batch: int = 256  # most texts in one call; 0: no limit
    max_batch_bytes: int = 8 << 20  # most bytes of text in one call; 0: no limit
    deterministic: bool = False  # the same text always gives the same vector, bit for bit, whatever else is in the batch
    sparse: bool = False  # vectors are dicts from place (from 0) to number, of those that are not zero: 1 to 16,000
    reranks: bool = False  # a reranker: it has scores (the method rerank) and no vectors; its dims are 1


@dataclass(frozen=True)
class Info:
    """What a plugin is and what it offers."""

    name: str
    version: str
    models: Sequence[Model]


@dataclass
class TextError:
    """The failure of one text. The message must not hold the text or a part of it."""

    kind: str  # "invalid", "retry_later", "too_long" or "refused"
    message: str = ""
    delay: float = 0  # seconds, with "retry_later"; 0: the host decides


@dataclass
class Answer:
    """The answer for one text: a vector, empty, or an error."""

    vector: Union[Sequence[float], Mapping[int, float], None] = None  # a mapping: of a sparse model
    empty: bool = False  # the text holds no token but special ones
    truncated: bool = False  # the text was longer than max_tokens and cut
    tokens: int = 0  # tokens the model saw; 0: unknown
    error: Optional[TextError] = field(default=None)


@dataclass
class Tokens:
    """Where the tokens of some texts end: what the method tokenize(model, texts) returns.

    For each text in order, ends has the index into the str after each of its tokens, so that text[:end] ends with the token: what
    the tokenizers of transformers call the end of an offset. The contract counts bytes; the package makes them of these. All tokens
    of the text are told, however long it is, and none that the model puts around it: around is how many those are, with the tokens
    of a prefix. A text of n tokens is read whole as long as n + around <= max_tokens. A model that cannot tell raises
    NotImplementedError.
    """

    ends: Sequence[Sequence[int]]  # not decreasing, none beyond its text
    around: int = 0


class _CallError(Exception):
    def __init__(self, message: str, delay: float = 0) -> None:
        super().__init__(message)
        self.delay = delay


class Again(_CallError):
    """The whole call failed and may succeed later, after delay seconds. So does every exception that is none of these three."""


class OutOfResources(_CallError):
    """The whole call failed for want of memory, quota or rate: again later, and with fewer texts."""


class Misconfigured(_CallError):
    """The whole call failed, and will, until a person has changed something."""


class Embedder(Protocol):
    """What an author implements.

    Two more methods may be there: tokenize(model, texts) -> Tokens; and rerank(model, query, texts), which returns one score for each
    text in order, the larger the better, and is called for models with reranks.
    """

    def describe(self) -> Info:
        """Called before the first text. It may load models."""

    def embed(self, model: str, kind: str, texts: Sequence[str]) -> Any:
        """Returns one answer for each text, in order: Answers, sequences of floats, or one array of shape (len(texts), dims).

        Of a sparse model: Answers, or dicts from place to number.
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

    With symmetric=False the function is called with the kind, "document" or "query", as its second argument. tokenize is a function
    from a list of texts to Tokens; without one the sidecar estimates where chunks of long texts end. Further arguments are those of
    Model: max_tokens, max_batch, max_batch_bytes, deterministic, sparse.
    """
    from ._server import serve

    info = Info(name, version, [Model(name=model or name, fingerprint=fingerprint, dims=dims, symmetric=symmetric, **limits)])
    serve(_Function(function, info, not symmetric, tokenize), concurrency=concurrency)

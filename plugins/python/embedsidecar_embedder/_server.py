"""The gRPC side of an Embedder."""

from __future__ import annotations

import array
import asyncio
import contextlib
import inspect
import json
import os
import struct
import sys
import threading
import traceback
from concurrent import futures
from typing import Any, Iterable, Iterator, Mapping, NoReturn, Sequence

import grpc

from . import _contract as pb
from . import _life
from ._types import DOCUMENT, QUERY, Again, Answer, Embedder, Info, Misconfigured, Model, OutOfResources, _CallError

MAX_MESSAGE = 64 << 20  # above the host's limits
_STATUS = {
    Again: grpc.StatusCode.UNAVAILABLE,
    OutOfResources: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Misconfigured: grpc.StatusCode.FAILED_PRECONDITION,
}


def serve(embedder: Embedder, concurrency: int = 1) -> NoReturn:
    """Runs the plugin and does not return: the process exits when the host asks for it or is gone.

    concurrency is how many calls of embed, rerank and tokenize may run at the same time. The exit status is 1 if no host started
    the program.
    """
    _life.check_host()
    stdout = _life.claim_stdout()
    _life.end_with_host()
    stop = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(4),
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
        ],
    )
    server.add_generic_rpc_handlers(_handlers(_Service(embedder), concurrency, stop))
    key, cert, told = _life.certificate()
    credentials = grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=os.environ["PLUGIN_CLIENT_CERT"].encode(), require_client_auth=True
    )
    socket = os.path.join(os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or "/tmp", f"plugin{os.getpid()}")
    server.add_secure_port("unix:" + socket, credentials)
    server.start()
    os.write(stdout, f"1|{_life.PROTOCOL_VERSION}|unix|{socket}|grpc|{told}\n".encode())
    stop.wait()
    server.stop(grace=1).wait()
    _life.end()


def _handlers(service: "_Service", concurrency: int, stop: threading.Event) -> list[Any]:
    def unary(method: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=request.FromString, response_serializer=lambda m: m.SerializeToString()
        )

    # Calls of embed have their own threads, so that health never waits for them.
    def embed(request: Any, context: grpc.ServicerContext) -> Any:
        return service.embed(request, context)

    def tokenize(request: Any, context: grpc.ServicerContext) -> Any:
        return service.tokenize(request, context)

    def rerank(request: Any, context: grpc.ServicerContext) -> Any:
        return service.rerank(request, context)

    turns = futures.ThreadPoolExecutor(concurrency)
    embed.experimental_thread_pool = turns  # type: ignore[attr-defined]
    tokenize.experimental_thread_pool = turns  # type: ignore[attr-defined]
    rerank.experimental_thread_pool = turns  # type: ignore[attr-defined]

    def shutdown(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        stop.set()
        return b""

    methods = {
        "Describe": unary(service.describe, pb.DescribeRequest),
        "Embed": unary(embed, pb.EmbedRequest),
        "Health": unary(service.health, pb.HealthRequest),
    }
    if service.tokenizes():  # otherwise the call is UNIMPLEMENTED
        methods["Tokenize"] = unary(tokenize, pb.TokenizeRequest)
    if service.reranks():
        methods["Rerank"] = unary(rerank, pb.RerankRequest)
    return [
        grpc.method_handlers_generic_handler(pb.PACKAGE + ".Embedder", methods),
        # A message without fields has no bytes.
        grpc.method_handlers_generic_handler(
            "plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}
        ),
    ]


class _Wrong(ValueError):
    """An invalid answer of the author's code. Its message contains no text, so it is passed on."""


class _Service:
    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._info: Info | None = None

    def _describe(self, context: grpc.ServicerContext) -> Info:
        with self._lock:
            if self._info is None:
                try:
                    self._info = _awaited(self._embedder.describe())
                except BaseException as problem:  # also sys.exit(), which would end this thread alone, and the call never
                    _abort(context, "describe", problem)
            return self._info  # type: ignore[return-value]

    def describe(self, _request: Any, context: grpc.ServicerContext) -> Any:
        info = self._describe(context)
        response = pb.DescribeResponse(name=info.name, version=info.version)
        for m in info.models:
            response.models.add(
                name=m.name, fingerprint=m.fingerprint, dims=m.dims, max_tokens=m.max_tokens, symmetric=m.symmetric,
                max_batch=m.max_batch, max_batch_bytes=m.max_batch_bytes, deterministic=m.deterministic, sparse=m.sparse,
                reranks=m.reranks,
            )  # fmt: skip
        return response

    def health(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        return pb.HealthResponse(ready=True)

    def tokenizes(self) -> bool:
        return callable(getattr(self._embedder, "tokenize", None))

    def reranks(self) -> bool:
        return callable(getattr(self._embedder, "rerank", None))

    @contextlib.contextmanager
    def _turn(self, method: str, context: grpc.ServicerContext) -> Iterator[None]:
        """Is around the author's code: an exception in it fails the call."""
        if not context.is_active():  # given up while it waited
            context.abort(grpc.StatusCode.CANCELLED, "the call has been given up")
        try:
            yield
        except BaseException as problem:  # as in _describe
            _abort(context, method, problem)

    def _model(self, request: Any, context: grpc.ServicerContext) -> Model:
        model = next((m for m in self._describe(context).models if m.name == request.model), None)
        if model is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "the plugin does not offer this model")
        return model  # type: ignore[return-value]

    def embed(self, request: Any, context: grpc.ServicerContext) -> Any:
        model = self._model(request, context)
        if model.reranks:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the model is a reranker: it makes no vectors")
        kind = {pb.KIND_DOCUMENT: DOCUMENT, pb.KIND_QUERY: QUERY}.get(request.kind)
        if kind is None or not request.texts:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no texts, or of a kind that is not known")
        with self._turn("embed", context):
            answers = _awaited(self._embedder.embed(model.name, kind, list(request.texts)))  # type: ignore[arg-type]
            return _pack(model, len(request.texts), answers)

    def rerank(self, request: Any, context: grpc.ServicerContext) -> Any:
        model = self._model(request, context)
        if not model.reranks:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the model is no reranker: it gives no scores")
        if not request.query or not request.texts:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no query, or no texts")
        with self._turn("rerank", context):
            scores = _awaited(self._embedder.rerank(model.name, request.query, list(request.texts)))  # type: ignore[attr-defined]
            if not hasattr(scores, "__len__") or len(scores) != len(request.texts):
                raise _Wrong(f"rerank returned {_kind(scores)}, want {len(request.texts)} scores")
            return pb.RerankResponse(scores=struct.pack(f"<{len(scores)}f", *(float(score) for score in scores)))

    def tokenize(self, request: Any, context: grpc.ServicerContext) -> Any:
        model = self._model(request, context)
        if not request.texts:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no texts")
        texts = list(request.texts)
        with self._turn("tokenize", context):
            tokens = _awaited(self._embedder.tokenize(model.name, list(texts)))  # type: ignore[attr-defined]
            if len(tokens.ends) != len(texts):
                raise ValueError
            response = pb.TokenizeResponse(around=tokens.around)
            for text, ends in zip(texts, tokens.ends):
                response.tokens.add(ends=_bytes(text, ends))
            return response


def _bytes(text: str, ends: Sequence[int]) -> list[int]:
    """Converts indices into a str to byte offsets in UTF-8."""
    found, at, size = [], 0, 0
    for end in ends:
        if not at <= end <= len(text):
            raise ValueError
        size += end - at if text.isascii() else len(text[at:end].encode())
        at = end
        found.append(size)
    return found


_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def _awaited(answer: Any) -> Any:
    """Waits for the answer of an async function. All run in one event loop, so that they can share clients."""
    global _loop
    if not inspect.isawaitable(answer):
        return answer
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="event loop", daemon=True).start()

    async def wait() -> Any:
        try:
            return await answer
        except (SystemExit, KeyboardInterrupt) as problem:  # would end the loop
            raise _Wrong(f"{type(problem).__name__} in an async function") from problem

    return asyncio.run_coroutine_threadsafe(wait(), _loop).result()


def _abort(context: grpc.ServicerContext, method: str, problem: BaseException) -> None:
    """Fails the call. An unknown exception may quote a text, so only its type and location are passed on."""
    if isinstance(problem, _CallError):
        status, message = next(_STATUS[kind] for kind in type(problem).__mro__ if kind in _STATUS), _short(problem)
        if problem.delay > 0:
            context.set_trailing_metadata((("grpc-status-details-bin", _retry_info(status, message, problem.delay)),))
        context.abort(status, message)
    if method == "tokenize" and isinstance(problem, NotImplementedError):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this model does not tell where its tokens end")
    frames = traceback.extract_tb(problem.__traceback__)
    at = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    what = f"{type(problem).__name__} in {method}{at}"
    if isinstance(problem, _Wrong):
        what = f"ValueError in {method}: {problem}"
    # One line, so that it is one record in the sidecar's log; outermost call first.
    calls = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames]
    sys.stderr.write(json.dumps({"@level": "error", "@message": what, "calls": ", ".join(calls)}) + "\n")
    context.abort(_code(problem), what)


# Exceptions that are not due to the texts, by the names of their classes and of those that they inherit from: requests,
# httpx, PyTorch and other libraries have their own.
_MEMORY = {"MemoryError", "OutOfMemoryError"}
_CONNECTION = {"ConnectionError", "Timeout", "TimeoutError", "TransportError", "APIConnectionError"}


def _code(problem: BaseException) -> grpc.StatusCode:
    """Returns the status of an unknown exception."""
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    if kinds & _MEMORY:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if kinds & _CONNECTION or "URLError" in kinds and "HTTPError" not in kinds:
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.INTERNAL


def _short(message: object) -> str:
    """Cuts a message to a little more than the host keeps. gRPC does not deliver a status with a message of 64 KiB."""
    return str(message).encode(errors="replace")[:320].decode(errors="ignore")


def _retry_info(status: grpc.StatusCode, message: str, delay: float) -> bytes:
    """Encodes a google.rpc.Status with a google.rpc.RetryInfo by hand, to avoid a dependency."""

    def varint(n: int) -> bytes:
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        out.append(n)
        return bytes(out)

    def number(tag: int, n: int) -> bytes:
        return varint(tag << 3) + varint(n)

    def block(tag: int, content: bytes) -> bytes:
        return varint(tag << 3 | 2) + varint(len(content)) + content

    duration = number(1, int(delay)) + number(2, int(delay % 1 * 1e9))
    detail = block(1, b"type.googleapis.com/google.rpc.RetryInfo") + block(2, block(1, duration))
    return number(1, status.value[0]) + block(2, message.encode()) + block(3, detail)


def _kind(value: Any) -> str:
    """Names the type of a value without quoting it."""
    return "nothing" if value is None else f"a {type(value).__name__}"


def _pack(model: Model, count: int, answers: Any) -> Any:
    """Converts answers to the message."""
    if isinstance(answers, (str, bytes, Mapping)) or not isinstance(answers, Iterable):
        raise _Wrong(f"embed returned {_kind(answers)}, want one answer for each of the {count} texts")
    if not hasattr(answers, "__len__"):  # a generator
        answers = list(answers)
    if len(answers) != count:
        raise _Wrong(f"embed returned {len(answers)} answers to {count} texts")
    response = pb.EmbedResponse(dims=model.dims)
    if hasattr(answers, "astype") and not model.sparse:  # an array of numpy, or something like it
        if answers.shape != (count, model.dims):
            raise _Wrong(f"embed returned an array of shape {tuple(answers.shape)}, want {(count, model.dims)}")
        response.vectors = answers.astype("<f4").tobytes()
        return response
    nothing = b"" if model.sparse else bytes(model.dims * 4)
    rows, tokens = [], []
    for index, answer in enumerate(answers):
        if not isinstance(answer, Answer):
            answer = Answer(vector=answer)
        tokens.append(answer.tokens)
        without = answer.empty or answer.error
        if model.sparse:
            _add_sparse(response.sparse, model, {} if without else answer.vector)
        else:
            rows.append(nothing if without else _row(model, answer.vector))
        if answer.error:
            outcome = response.outcomes.add(index=index)
            setattr(outcome.error, "class", pb.ERROR_CLASSES.get(answer.error.kind, 4))
            outcome.error.message = _short(answer.error.message)
            outcome.error.delay_ms = min(int(answer.error.delay * 1000), 3_600_000)
        elif answer.empty:
            response.outcomes.add(index=index, empty=True)
        elif answer.truncated:
            response.outcomes.add(index=index, truncated=True)
    response.vectors = b"".join(rows)
    if any(tokens):
        response.tokens.extend(tokens)
    return response


def _add_sparse(into: Any, model: Model, vector: Mapping[int, float] | None) -> None:
    """Adds one sparse vector, sorted by index."""
    if not isinstance(vector, Mapping):
        raise _Wrong(f"embed returned {_kind(vector)} as a sparse vector, want a dict from index to number")
    singles = array.array("f", vector.values())  # as sent: a number may become zero or infinite in single precision
    numbers = sorted((int(place), x) for place, x in zip(vector, singles) if x != 0)
    if numbers and not 0 <= numbers[0][0] <= numbers[-1][0] < model.dims:
        raise _Wrong(f"an index of a sparse vector is not from 0 to {model.dims - 1}")
    for (place, _), (after, _) in zip(numbers, numbers[1:]):
        if place == after:
            raise _Wrong(f"two keys of a sparse vector are the index {place}")
    into.counts.append(len(numbers))
    into.indices += struct.pack(f"<{len(numbers)}I", *(place for place, _ in numbers))
    into.values += struct.pack(f"<{len(numbers)}f", *(x for _, x in numbers))


def _row(model: Model, vector: Any) -> bytes:
    """Packs one vector, little-endian."""
    if isinstance(vector, (str, bytes, Mapping)) or not hasattr(vector, "__len__"):
        raise _Wrong(f"embed returned {_kind(vector)} as a vector, want {model.dims} numbers")
    if len(vector) != model.dims:
        raise _Wrong(f"embed returned a vector of {len(vector)} numbers, want {model.dims}")
    if hasattr(vector, "astype"):
        return vector.astype("<f4").tobytes()
    try:
        row = array.array("f", vector)
    except TypeError:
        raise _Wrong(f"embed returned a vector that holds {_kind(next(iter(vector)))}, want numbers") from None
    if sys.byteorder == "big":
        row.byteswap()
    return row.tobytes()

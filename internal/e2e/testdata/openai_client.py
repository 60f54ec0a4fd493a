"""Talks to the server of TestQueries_OpenAIClient through OpenAI's own client, unchanged, and prints what it got as JSON."""

import base64
import json
import math
import os
import struct

import openai

client = openai.OpenAI(base_url=os.environ["TEST_URL"] + "/v1", api_key=os.environ["TEST_TOKEN"], max_retries=0)
model, text = os.environ["TEST_MODEL"], os.environ["TEST_TEXT"]


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def single(numbers):
    """The numbers in single precision, which is what they were before they were written as decimals."""
    return list(struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers)))


usual = client.embeddings.create(model=model, input=text)  # asks for base64 and unpacks it
vector = usual.data[0].embedding
assert usual.object == "list" and usual.model == model and usual.data[0].index == 0
assert usual.usage.prompt_tokens > 0 and usual.usage.total_tokens == usual.usage.prompt_tokens
assert len(vector) == 384 and math.isclose(math.fsum(x * x for x in vector), 1, abs_tol=1e-4)

plain = client.embeddings.create(model=model, input=[text, "another text"], encoding_format="float")
assert single(plain.data[0].embedding) == vector
assert plain.data[1].index == 1 and plain.data[1].embedding != vector

packed = client.embeddings.with_raw_response.create(model=model, input=text, encoding_format="base64")
assert packed.headers["x-request-id"]
raw = base64.b64decode(json.loads(packed.text)["data"][0]["embedding"])
assert list(struct.unpack("<384f", raw)) == vector

assert len(client.embeddings.create(model=model, input=[f"text {i}" for i in range(200)], dimensions=384).data) == 200
client.embeddings.create(model=model, input="a question", extra_body={"input_type": "query"})

assert [m.id for m in client.models.list()] == [model]
assert client.models.retrieve(model).owned_by == "embedsidecar"

error = refused(openai.NotFoundError, lambda: client.embeddings.create(model="text-embedding-3-small", input="x"))
assert error.code == "model_not_found" and error.type == "invalid_request_error" and error.param == "model", error
error = refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input=[[1, 2, 3]]))
assert error.code == "tokens_not_supported" and error.param == "input", error
refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input=""))
refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input="x", dimensions=7))
refused(openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list())

print(json.dumps(vector))

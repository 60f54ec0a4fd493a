"""The messages of the contract, made from contract.binpb, the compiled plugins/proto/embedder.proto.

The classes that protoc generates for Python are not used: they refuse protobuf libraries older than their protoc, which other
imports of a plugin often need.
"""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "embedsidecar.plugin.v1"

_files = descriptor_pb2.FileDescriptorSet.FromString((Path(__file__).parent / "contract.binpb").read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)


def _message(name):
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


DescribeRequest = _message("DescribeRequest")
DescribeResponse = _message("DescribeResponse")
EmbedRequest = _message("EmbedRequest")
EmbedResponse = _message("EmbedResponse")
HealthRequest = _message("HealthRequest")
HealthResponse = _message("HealthResponse")
TokenizeRequest = _message("TokenizeRequest")
TokenizeResponse = _message("TokenizeResponse")
RerankRequest = _message("RerankRequest")
RerankResponse = _message("RerankResponse")

KIND_DOCUMENT, KIND_QUERY = 1, 2
ERROR_CLASSES = {"retry_later": 1, "too_long": 2, "refused": 3, "invalid": 4}

#!/usr/bin/env python3
"""A plugin written from docs/plugins.md alone, without our package; the numbers are those of "In another language" there.

Its messages come from: python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. embedder.proto
"""

import base64
import datetime
import math
import os
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

if os.environ.get("EMBEDSIDECAR_PLUGIN_COOKIE") != "started-by-embedsidecar":
    sys.exit("this is a plugin of embedsidecar")            # 1. status 1, on stderr
if "1" not in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "1").split(","):
    sys.exit("this plugin speaks version 1 of the protocol only")  # 2.

def lifeline():                                              # 3.
    while sys.stdin.buffer.read(1024):
        pass
    os.killpg(0, signal.SIGKILL)
if os.environ.get("EMBEDSIDECAR_PLUGIN_LIFELINE") == "stdin":
    threading.Thread(target=lifeline, daemon=True).start()

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import embedder_pb2 as pb
import embedder_pb2_grpc as rpc

key = ec.generate_private_key(ec.SECP256R1())                # 4.
name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stranger")])
now = datetime.datetime.now(datetime.timezone.utc)
cert = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(key, hashes.SHA256()))
pem_key = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

DIMS = 32
class Embedder(rpc.EmbedderServicer):
    def Describe(self, request, context):
        return pb.DescribeResponse(name="stranger", version="0.1", models=[pb.Model(
            name="letters", fingerprint="letters-32-v1", dims=DIMS, max_tokens=512, symmetric=False,
            max_batch=100, max_batch_bytes=1 << 20, deterministic=True)])
    def Embed(self, request, context):
        if request.model != "letters":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        if request.kind not in (1, 2):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such kind")
        response = pb.EmbedResponse(dims=DIMS)
        out = []
        for i, text in enumerate(request.texts):
            tokens = text.split()
            if not tokens:
                response.outcomes.add(index=i, empty=True)
                response.tokens.append(0)
                out.append(bytes(4 * DIMS))
                continue
            if len(tokens) > 512:
                tokens = tokens[:512]
                response.outcomes.add(index=i, truncated=True)
            response.tokens.append(len(tokens))
            v = [0.0] * DIMS
            v[0] = 1.0 if request.kind == 2 else 0.5
            for t in tokens:
                for c in t:
                    v[1 + ord(c) % (DIMS - 1)] += 1
            n = math.sqrt(sum(x * x for x in v))
            out.append(struct.pack("<%df" % DIMS, *(x / n for x in v)))
        response.vectors = b"".join(out)
        return response
    def Health(self, request, context):
        return pb.HealthResponse(ready=True)

done = threading.Event()
def shutdown(request, context):
    done.set()
    return b""
server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)])
rpc.add_EmbedderServicer_to_server(Embedder(), server)       # 6.
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)})])
path = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "s")  # 5.
server.add_secure_port("unix:" + path, grpc.ssl_server_credentials([(pem_key, cert.public_bytes(serialization.Encoding.PEM))],
    root_certificates=os.environ["PLUGIN_CLIENT_CERT"].encode(), require_client_auth=True))
server.start()
der = base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode().rstrip("=")
print(f"1|1|unix|{path}|grpc|{der}", flush=True)             # 7.
done.wait()
server.stop(1).wait()

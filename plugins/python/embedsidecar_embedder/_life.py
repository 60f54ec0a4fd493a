"""The plugin's process: its handshake, its certificate, and its end."""

from __future__ import annotations

import base64
import datetime
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

COOKIE, COOKIE_VALUE = "EMBEDSIDECAR_PLUGIN_COOKIE", "started-by-embedsidecar"
PROTOCOL_VERSION = 1


def refuse(message: str) -> None:
    """Exits with an error message and status 1."""
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {message}\n")
    sys.stderr.flush()
    raise SystemExit(1)


def check_host() -> None:
    """Exits unless a host with this version of the protocol has started the program."""
    if os.environ.get(COOKIE) != COOKIE_VALUE:
        refuse("this is a plugin of embedsidecar and is started by it: embedsidecar plugins test " + sys.argv[0])
    offered = os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "")
    if offered and str(PROTOCOL_VERSION) not in [v.strip() for v in offered.split(",")]:
        refuse(
            f"this plugin speaks version {PROTOCOL_VERSION} of the plugin protocol, the program that started it only "
            f'"{offered}": install the plugin that belongs to that program'
        )
    if not os.environ.get("PLUGIN_CLIENT_CERT"):
        refuse("the host gave no certificate in PLUGIN_CLIENT_CERT")


def started_by_host() -> bool:
    """Reports whether a host has started this process, and not another process of the plugin."""
    return os.environ.get(COOKIE) == COOKIE_VALUE and os.getpgrp() == os.getpid()


def certificate() -> tuple[bytes, bytes, str]:
    """Makes a key and a self-signed certificate as PEM, and the certificate's form for the handshake."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    der = cert.public_bytes(serialization.Encoding.DER)
    return key_pem, cert.public_bytes(serialization.Encoding.PEM), base64.b64encode(der).rstrip(b"=").decode()


_handshake = -1  # standard output, after claim_stdout


def claim_stdout() -> int:
    """Reserves standard output for the handshake and redirects prints to standard error.

    In a program that a host has started, importing the package calls it, because later imports may print a banner.
    """
    global _handshake
    if _handshake >= 0:
        return _handshake
    _handshake = os.dup(1)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    return _handshake


def end() -> NoReturn:
    """Exits immediately.

    Python's own exit can take seconds: it waits for threads of cancelled calls and unloads large libraries.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def end_with_host() -> None:
    """Ends the process and its children as soon as the host is gone."""
    threading.Thread(target=_end_with_host, args=(os.getppid(),), name="lifeline", daemon=True).start()


def _end_with_host(parent: int) -> None:
    if os.environ.get("EMBEDSIDECAR_PLUGIN_LIFELINE") == "stdin":
        while os.read(0, 4096):
            pass
    else:  # under another kind of host
        while os.getppid() == parent:
            time.sleep(0.5)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

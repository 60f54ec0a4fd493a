"""What concerns the process: its handshake, its certificate, and its end."""

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
    """Ends the program with a word about why."""
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {message}\n")
    sys.stderr.flush()
    raise SystemExit(1)


def check_host() -> None:
    """Ends the program unless a host has started it that speaks this version of the protocol."""
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
    """Tells whether this is the process that a host has started, and not one that a plugin has started in its turn."""
    return os.environ.get(COOKIE) == COOKIE_VALUE and os.getpgrp() == os.getpid()


def certificate() -> tuple[bytes, bytes, str]:
    """Makes a key and a certificate of its own, as PEM, and what the handshake tells of it."""
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


_handshake = -1  # standard output, once it is claimed


def claim_stdout() -> int:
    """Keeps standard output for the handshake; whatever the program prints goes to standard error from now on.

    Importing the package does that in a program that a host has started: what is imported next may have a banner to print.
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
    """Ends the process now.

    Python itself would wait for the threads of calls that were given up, and take large libraries to pieces, for seconds.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def end_with_host() -> None:
    """Ends the process, and what it started, as soon as the host is gone."""
    threading.Thread(target=_end_with_host, args=(os.getppid(),), name="lifeline", daemon=True).start()


def _end_with_host(parent: int) -> None:
    if os.environ.get("EMBEDSIDECAR_PLUGIN_LIFELINE") == "stdin":
        while os.read(0, 4096):
            pass
    else:  # under a host of somebody else's
        while os.getppid() == parent:
            time.sleep(0.5)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

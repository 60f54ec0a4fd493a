"""The worker of main.go beside this file, as one would write it in Python with plain psycopg.

DATABASE_URL says where. It ends at SIGTERM. A text's vector is the 32 bytes of its SHA-256, twelve times over, as numbers: what the Go worker
computes takes a loop over 384 numbers, which would be most of this program's time.
"""

import hashlib
import os
import signal
import struct
from array import array

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format


class Vector:
    def __init__(self, text_hash):
        self.numbers = array("f", list(text_hash) * 12)


def vector_dumper(type_oid):
    class VectorDumper(Dumper):
        format = Format.BINARY
        oid = type_oid

        def dump(self, vector):
            numbers = array("f", vector.numbers)
            numbers.byteswap()
            return struct.pack(">HH", len(numbers), 0) + numbers.tobytes()

    return VectorDumper


def embed(conn, ids):
    rows = conn.execute("SELECT id, body FROM public.docs WHERE id = ANY (%s)", (ids,)).fetchall()
    values = []
    for id, text in rows:
        text_hash = hashlib.sha256(text.encode()).digest()
        values.append((id, text_hash, Vector(text_hash)))
    if not values:
        return
    with conn.transaction():
        conn.cursor().executemany(
            """INSERT INTO public.docs_embedding AS e (id, text_hash, embedding) VALUES (%s, %s, %s)
            ON CONFLICT (id) DO UPDATE SET text_hash = excluded.text_hash, embedding = excluded.embedding""",
            values,
        )


def main():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    conn = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    oid = conn.execute("SELECT 'public.vector'::regtype::oid").fetchone()[0]
    conn.adapters.register_dumper(Vector, vector_dumper(oid))
    conn.execute("LISTEN toy")
    while True:
        # Notifications of one packet are returned together; those between two calls are returned by the next.
        told = {int(n.payload) for n in conn.notifies(stop_after=1)}
        embed(conn, sorted(told))


main()

#!/usr/bin/env python3
"""The other side of the comparison: sentence-transformers, kept warm.

    st.py MODEL-FOLDER THREADS

Each line of standard input is a JSON object {"batch": 32, "texts": [...]}; the answer is a line of JSON with the seconds and the
CPU seconds that encode took. The folder needs model.safetensors, which the folder of the plugin does not have.
"""

import json
import resource
import sys
import time

import torch
from sentence_transformers import SentenceTransformer

torch.set_num_threads(int(sys.argv[2]))
model = SentenceTransformer(sys.argv[1], device="cpu")
model.encode(["the first one makes it load"] * 8, batch_size=8)


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


for line in sys.stdin:
    request = json.loads(line)
    began, used = time.perf_counter(), cpu()
    vectors = model.encode(request["texts"], batch_size=request["batch"], show_progress_bar=False)
    answer = {"seconds": time.perf_counter() - began, "cpu": cpu() - used, "first": vectors[0][:4].tolist()}
    print(json.dumps(answer), flush=True)

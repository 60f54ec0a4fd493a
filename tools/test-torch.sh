#!/usr/bin/env bash
# test-torch.sh: runs embedsidecar plugins test on the sentence-transformers example. It is not part of make test, because
# PyTorch takes 6 GB of disk. Nothing is downloaded from a hub.
#
#   make test-torch
#   MODEL=/models/mine make test-torch                 another model: a folder of sentence-transformers
#   TORCH_PYTHON=/venv/bin/python3 make test-torch     an environment that has sentence-transformers, instead of a new one
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

make_tmp
python=${TORCH_PYTHON:-}
if [ -z "$python" ]; then
  need_space 7000
  say "installing sentence-transformers into a throw-away folder (minutes)"
  python3 -m venv "$tmp/venv"
  python=$tmp/venv/bin/python3
  # TMPDIR: pip unpacks more than some /tmp can hold.
  TMPDIR=$tmp "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir sentence-transformers==6.2.0 grpcio==1.85.1 \
    protobuf==7.36.2 cryptography==50.0.2 >&2 || die "cannot install, see above" "check the network and pip's settings"
fi
"$python" -c 'import sentence_transformers' || die "$python has no sentence-transformers"
mkdir "$tmp/site"
cp -r "$clone/plugins/python/embedsidecar_embedder" "$tmp/site/"

model=${MODEL:-}
if [ -z "$model" ]; then
  download_weights
  model=$weights
fi
plugin=$tmp/embedsidecar-sentence-transformers
{ printf '#!%s\n' "$python" && tail -n +2 "$clone/plugins/python/examples/embedsidecar-sentence-transformers"; } >"$plugin"
chmod +x "$plugin"
status=0
"$clone/bin/embedsidecar" plugins test "$plugin" --env "EMBEDSIDECAR_PLUGIN_MODEL=$(cd "$model" && pwd)" --env "PYTHONPATH=$tmp/site" || status=$?
exit "$status" # 4: a check failed, which the report has told

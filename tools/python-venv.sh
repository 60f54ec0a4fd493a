#!/usr/bin/env bash
# python-venv.sh: puts a Python environment for plugins in Python into the cache and prints its folder. No root needed.
#
#   venv=$(tools/python-venv.sh)
#
# A second run does nothing. It holds the pinned libraries; tests install our own package from the clone.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

packages=(grpcio==1.85.1 grpcio-tools==1.85.1 protobuf==7.36.2 cryptography==50.0.2 setuptools==84.2.1)
folder=$cache/python/$(printf '%s\n' "$(python3 --version)" "${packages[@]}" | cksum | cut -d' ' -f1)
if [ -x "$folder/bin/python3" ] && [ -f "$folder/.complete" ]; then
  echo "$folder"
  exit
fi

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$tools/need.sh" python >&2
mkdir -p "$cache/python" || die "cannot make $cache/python" "$make_space"
need_space 120
say "making a Python environment with ${packages[*]}, once"
# An environment cannot be moved after it is made, so a marker file shows that it is complete.
exec 9>"$cache/python/.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ ! -f "$folder/.complete" ]; then
  rm -rf "$folder"
  python3 -m venv "$folder" || die "cannot make a Python environment, see above"
  retry "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 5 --timeout 30 --only-binary=:all: "${packages[@]}" >&2 ||
    die "cannot install ${packages[*]}, see above" "check the network and pip's settings, then run this again"
  touch "$folder/.complete"
fi
echo "$folder"

#!/usr/bin/env bash
# venv.sh FOLDER PACKAGE...: makes a Python environment with these packages, unless it exists. Concurrent runs wait for the
# first. The file .complete marks a complete environment.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

folder=$1
shift
[ ! -f "$folder/.complete" ] || exit 0
mkdir -p "$(dirname "$folder")" || die "cannot make $(dirname "$folder")" "$make_space"
exec 9>"$folder.lock"
if command -v flock >/dev/null; then flock 9; fi
[ ! -f "$folder/.complete" ] || exit 0
rm -rf "$folder"
python3 -m venv "$folder" || die "cannot make a Python environment, see above"
retry "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check --retries 5 --timeout 30 --only-binary=:all: "$@" >&2 ||
  die "cannot install $*, see above" "check the network and pip's settings, then run this again"
touch "$folder/.complete"

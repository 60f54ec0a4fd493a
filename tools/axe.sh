#!/usr/bin/env bash
# axe.sh: fetches axe-core, an accessibility checker for web pages, into the cache, by npm. Tests load it into a
# browser; it is not part of the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=4.14.1 # keep equal to internal/door/dashboard/browser_test.go
folder=${XDG_CACHE_HOME:-$HOME/.cache}/embedsidecar/axe-core-$version
[ ! -s "$folder/axe.min.js" ] || exit 0

. tools/retry.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { (cd "$work" && npm pack --silent "axe-core@$version"); }
retry fetch >/dev/null
tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js package/LICENSE
mkdir -p "$folder"
mv "$work/package/LICENSE" "$folder/"
mv "$work/package/axe.min.js" "$folder/"

#!/usr/bin/env bash
# sums.sh [FOLDER]: writes FOLDER/SHA256SUMS for the packages in a folder (dist). With SIGN_KEY=FILE (a private key of
# ssh-keygen, or the .pub of a key that an agent holds) it also writes SHA256SUMS.sig. docs/systemd.md explains the check.
set -euo pipefail
cd "${1:-dist}"
rm -f SHA256SUMS SHA256SUMS.sig # of other packages
shopt -s nullglob
files=(*.deb *.rpm)
[ "${#files[@]}" -gt 0 ] || { echo "sums.sh: there are no packages in $PWD: run make packages" >&2; exit 1; }
sha256sum -- "${files[@]}" >SHA256SUMS
[ -z "${SIGN_KEY:-}" ] || ssh-keygen -q -Y sign -f "$SIGN_KEY" -n release SHA256SUMS

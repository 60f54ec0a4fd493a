#!/usr/bin/env bash
# canary.sh FOLDER: prints how many outputs of a test run were searched for secrets and texts, and fails if something
# was found or nothing was searched. Each test binary has written a line there: outputs, bytes, findings, its folder.
set -euo pipefail
shopt -s nullglob
files=("$1"/*)
if [ ${#files[@]} -eq 0 ]; then
  echo "canary: no output was searched: no test that searches one has run" >&2
  exit 1
fi
awk '{ outputs += $1; bytes += $2; found += $3; if ($3 > 0) print "canary: found in what " $4 " printed: see its test" > "/dev/stderr" }
  END { printf "canary: %d outputs of %d packages searched for passwords and texts of rows, %.1f MB; found in %d\n", outputs, NR, bytes / 1e6, found; exit found > 0 || outputs == 0 }' "${files[@]}"

#!/usr/bin/env bash
# told.sh COMMAND...: runs go test. If it fails, it repeats the failed tests at the end, with a few lines of each, because
# logs of processes hide them in a long run.
set -euo pipefail

out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
"$@" 2>&1 | tee "$out" || status=$?
if [ "$status" -ne 0 ]; then
  echo
  echo "What failed:"
  awk '
    /^ *--- FAIL|^ *FAIL: testdata|^FAIL\t|^panic:|^WARNING: DATA RACE|^# / { print; left = 0; next }
    /_test\.go:[0-9]+: / { left = 6 }
    /^ *(=== |--- )|\{"time"|_test\.go:[0-9]+: time=/ { left = 0 }
    left-- > 0 { print substr($0, 1, 600) }
  ' "$out"
fi
exit "$status"

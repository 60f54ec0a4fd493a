#!/usr/bin/env bash
# nightly.sh: what make nightly runs. A step that fails keeps none of the others from running; the end tells which failed, with exit
# status 1, and docs/faults.md is written anew. NIGHTLY='race kills' runs these alone and leaves the page. The outputs stay in bin/nightly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

logs=bin/nightly
mkdir -p "$logs"
told=() failed=()

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS status=0 word=passed
  shift
  if [[ -n "${NIGHTLY:-}" && " $NIGHTLY " != *" $name "* ]]; then return; fi
  echo "nightly: $name: $*"
  "$@" >"$logs/$name.out" 2>"$logs/$name.err" || status=$?
  if [ "$status" -ne 0 ] && [ "$name" = vuln ] && grep -qE 'fetching vulnerabilities|no such host|connection refused|i/o timeout' "$logs/vuln.err"; then
    word='not run: the vulnerability database cannot be reached'
  elif [ "$status" -ne 0 ]; then
    word=failed failed+=("$name")
    grep -hoE '"Action":"fail","Package":"[^"]*","Test":"[^"]*"' "$logs/$name.out" | cut -d'"' -f8,12 | tr '"' ' ' | sort -u || true
    grep -v '^{"Time"' "$logs/$name.out" | tail -n 20 || true
    tail -n 20 "$logs/$name.err"
  fi
  told+=("$(printf '%-8s %6d s  %s' "$name" $((SECONDS - start)) "$word")")
  echo "nightly: ${told[-1]}"
}

export EVENTS=1
step race make test-race TEST='-timeout 90m ./...'
step fuzz make fuzz
step vuln make vuln
step cover make cover EVENTS=
step majors make test PG_TEST='14 16 17'
step kills make test-kills
step long make test-long

step faults go run ./tools/faults "$logs"/{race,majors,kills,long}.out

printf 'nightly: %s\n' "${told[@]}"
if [ "${#failed[@]}" -gt 0 ]; then
  echo "nightly: failed: ${failed[*]}" >&2
  exit 1
fi

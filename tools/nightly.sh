#!/usr/bin/env bash
# nightly.sh: runs the steps of make nightly. A failed step does not stop the others; the exit status is then 1. An
# interrupted run continues: steps that passed on the same commit are not repeated (CONTINUE=0 repeats all).
# NIGHTLY='race kills' runs only these steps. If all steps pass, it writes docs/faults.md. Outputs stay in bin/nightly.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

logs=bin/nightly
mkdir -p "$logs"
told=() failed=()
commit=$(git describe --always --dirty)

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS status=0 word=passed
  shift
  if [[ -n "${NIGHTLY:-}" && " $NIGHTLY " != *" $name "* ]]; then return; fi
  if [ "${CONTINUE:-1}" != 0 ] && [ "$(head -n 1 "$logs/$name.passed" 2>/dev/null)" = "$commit" ]; then
    told+=("$(tail -n 1 "$logs/$name.passed"), before")
    return
  fi
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
  if [ "$word" != failed ] && [[ "$commit" != *-dirty ]]; then printf '%s\n%s\n' "$commit" "${told[-1]}" >"$logs/$name.passed"; fi
  echo "nightly: ${told[-1]}"
}

export EVENTS=1
# The race detector does not see into the programs that the e2e tests start. The tests of testenv/long.txt repeat shorter
# ones.
step race make test-race SHORT=1 PG_TEST=18 TEST="-timeout 60m $(go list ./... | grep -v /internal/e2e | tr '\n' ' ')"
step fuzz make fuzz
step vuln make vuln
step majors make test-all COVER=1 PG_TEST='14 16 17'
step kills make test-kills
step long make test-long

step faults go run ./tools/faults "$logs"/{race,majors,kills,long}.out

printf 'nightly: %s\n' "${told[@]}"
if [ "${#failed[@]}" -gt 0 ]; then
  echo "nightly: failed: ${failed[*]}" >&2
  exit 1
fi

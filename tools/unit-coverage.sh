#!/usr/bin/env bash
# unit-coverage.sh LEAST PACKAGE...: runs the packages' own tests without PostgreSQL, and prints the coverage of each. It
# fails if a test fails, or if a package is below LEAST percent.
set -euo pipefail
least=$1
shift

# With PGBIN, testenv looks for a server only there: a test that needs one fails.
PGBIN=/dev/null EMBEDSIDECAR_TEST_DSN='' EMBEDSIDECAR_TEST_MAJORS='' "${GO:-go}" test -cover "$@" |
  awk -v least="$least" -v packages=$# '
    !match($0, /coverage: [0-9.]+%/) || $1 == "coverage:" { print; next } # what a failed test says
    {
      percent = substr($0, RSTART + 10, RLENGTH - 11) + 0
      name = $1 == "ok" ? $2 : $1
      sub(/^.*\/embedsidecar\//, "", name)
      printf "%-28s %5.1f %%, at least %s %% wanted\n", name, percent, least
      measured++
      if (percent < least) low++
    }
    END {
      if (measured < packages) print "coverage: " (packages - measured) " of " packages " packages were not measured" > "/dev/stderr"
      if (low) print "coverage: " low " of " packages " packages are below the limit: see Tests in docs/architecture.md" > "/dev/stderr"
      exit (measured < packages || low > 0)
    }'

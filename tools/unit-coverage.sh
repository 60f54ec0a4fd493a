#!/usr/bin/env bash
# unit-coverage.sh LEAST PACKAGE...: runs the packages' own tests where no PostgreSQL can be found, and prints how many percent of its own
# statements each reaches. Fails when a test fails, or when a package stays below LEAST.
set -euo pipefail
least=$1
shift

# With PGBIN, testenv looks for a server nowhere else: a test that asks for one fails.
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

#!/usr/bin/env bash
# initdb.sh: what the server of docker-compose.yml runs once, in a new and empty database, after the table is there: the sidecar's two roles,
# with their passwords. What they may do, `embedsidecar roles` says when the set-up is done.
set -euo pipefail

# password ROLE: from the file that the sidecar reads, too.
password() { awk -F: -v role="$1" '$4 == role { print $5 }' /run/secrets/sidecar.pgpass; }

psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  -v run="$(password embedsidecar_run)" -v stream="$(password embedsidecar_stream)" <<'SQL'
CREATE ROLE embedsidecar_run LOGIN PASSWORD :'run';
CREATE ROLE embedsidecar_stream LOGIN REPLICATION PASSWORD :'stream';
SQL

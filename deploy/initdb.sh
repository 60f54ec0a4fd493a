#!/usr/bin/env bash
# initdb.sh: the server of docker-compose.yml runs it once, in a new database, after it has created the table. It
# creates the sidecar's two roles with their passwords. `embedsidecar roles` grants their privileges after the set-up.
set -euo pipefail

# password ROLE: from the file that the sidecar also reads.
password() { awk -F: -v role="$1" '$4 == role { print $5 }' /run/secrets/sidecar.pgpass; }

psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  -v run="$(password embedsidecar_run)" -v stream="$(password embedsidecar_stream)" <<'SQL'
CREATE ROLE embedsidecar_run LOGIN PASSWORD :'run';
CREATE ROLE embedsidecar_stream LOGIN REPLICATION PASSWORD :'stream';
SQL

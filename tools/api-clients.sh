#!/usr/bin/env bash
# Generates clients for TypeScript and Python into dist/clients, from the OpenAPI document of bin/embedsidecar. Usage:
# api-clients.sh FOLDER, where FOLDER is the output of tools/clients.sh, with the generators.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

clients=dist/clients
rm -rf "$clients"
mkdir -p "$clients/typescript"
make_tmp
bin/embedsidecar serve --http 127.0.0.1:0 --no-auth --log-format json 2>"$tmp/log" &
trap 'kill $!; rm -rf "$tmp"' EXIT
until address=$(sed -n 's/.*"queries are answered".*"address":"\([^"]*\)".*/\1/p' "$tmp/log") && [ -n "$address" ]; do
  kill -0 $! || die "bin/embedsidecar has ended: $(cat "$tmp/log")" "make build-core"
  sleep 0.1
done
"$1/venv/bin/python3" -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' \
  "http://$address/openapi.json" >"$clients/openapi.json"
"$1/node/node_modules/.bin/openapi-typescript" "$clients/openapi.json" -o "$clients/typescript/embedsidecar.d.ts" >&2
# Without ruff it prints a warning and does not format its output.
"$1/venv/bin/openapi-python-client" generate --path "$clients/openapi.json" --output-path "$clients/python" >"$tmp/said" 2>&1 ||
  die "no client for Python: $(cat "$tmp/said")"

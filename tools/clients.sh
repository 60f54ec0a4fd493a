#!/usr/bin/env bash
# clients.sh: fetches the client libraries for make test-clients into the cache, and prints the folder: the libraries of
# docs/recipes.md, Django, node-postgres, PgBouncer, and generators of clients. A second run does nothing. Needs
# python3, npm, and Debian's apt-get; it does not change the system.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

python=(Django==5.2.19 psycopg==3.3.9 psycopg-binary==3.3.9 SQLAlchemy==2.1.9 pgvector==0.5.1
  alembic==1.20.1 llama-index-core==0.14.25 openapi-python-client==0.29.1)
langchain=(langchain-postgres==0.0.19 langchain-openai==1.7.4 psycopg-binary==3.3.9) # brings its own pgvector
node=(pg@8.23.1 drizzle-orm@0.45.4 drizzle-kit@0.31.11 prisma@7.10.1 @prisma/client@7.10.0 @prisma/adapter-pg@7.10.1 ai@6.0.326
  @ai-sdk/openai-compatible@2.0.92 zod@4.6.7 openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3)
debs=(pgbouncer libc-ares2 libevent-2.1-7)
folder=$cache/clients/$(echo "${python[@]}" "${langchain[@]}" "${node[@]}" "${debs[@]}" | cksum | cut -d' ' -f1)

if [ ! -f "$folder/.complete" ]; then
  command -v npm >/dev/null || die "npm is missing" "apt-get install npm"
  command -v apt-get >/dev/null || die "apt-get is missing: PgBouncer comes from Debian's packages"
  mkdir -p "$folder" || die "cannot make $folder" "$make_space"
  exec 9>"$folder.lock"
  if command -v flock >/dev/null; then flock 9; fi
  "$(dirname "${BASH_SOURCE[0]}")/venv.sh" "$folder/venv" "${python[@]}"
  "$(dirname "${BASH_SOURCE[0]}")/venv.sh" "$folder/langchain" "${langchain[@]}"
  mkdir -p "$folder/node" "$folder/pgbouncer/lib"
  (cd "$folder/node" && retry npm install --no-audit --no-fund --ignore-scripts --loglevel=error "${node[@]}" >&2) || die "cannot install ${node[*]}, see above" "check the network and npm's settings"
  make_tmp
  (cd "$tmp" && retry apt-get download -o APT::Sandbox::User=root "${debs[@]}" >&2) || die "cannot download ${debs[*]}, see above" "apt-get update, then run this again"
  for deb in "$tmp"/*.deb; do dpkg -x "$deb" "$folder/pgbouncer"; done
  find "$folder/pgbouncer/usr/lib" -name '*.so.*' -exec cp -P {} "$folder/pgbouncer/lib/" \;
  touch "$folder/.complete"
fi
echo "$folder"

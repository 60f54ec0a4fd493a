#!/usr/bin/env bash
# secrets.sh: makes the passwords that docker-compose.yml reads, in deploy/secrets. What is there already stays.
#
# The folder can be entered by you alone. The files in it can be read by anyone who can reach them, because in a container that is another
# user: compose mounts single files, each into the services that name it.
set -euo pipefail
umask 077
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p secrets
cd secrets

password() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
# make FILE LINE...: a file with these lines, unless it is there.
make() {
  local file=$1
  shift
  [ ! -s "$file" ] || return 0
  printf '%s\n' "$@" >"$file.new"
  chmod 444 "$file.new"
  mv "$file.new" "$file"
}

make postgres_password "$(password)"
# The key of a provider of embeddings (deploy/remote.env), for who has one.
[ -e remote.key ] || { : >remote.key && chmod 444 remote.key; }
# For those who set up (the server's superuser), and for the sidecar. Both are of libpq's form: host:port:database:user:password.
make setup.pgpass "*:*:*:postgres:$(cat postgres_password)"
make sidecar.pgpass "*:*:*:embedsidecar_run:$(password)" "*:*:*:embedsidecar_stream:$(password)"

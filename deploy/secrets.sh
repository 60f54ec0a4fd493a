#!/usr/bin/env bash
# secrets.sh: makes the passwords that docker-compose.yml reads, in deploy/secrets. Existing files stay.
#
# Only you can enter the folder. Its files are readable for everyone, because the user in a container is another one:
# compose mounts each file into the services that name it.
set -euo pipefail
umask 077
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p secrets
cd secrets

password() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
# make FILE LINE...: a file with these lines, unless it exists.
make() {
  local file=$1
  shift
  [ ! -s "$file" ] || return 0
  printf '%s\n' "$@" >"$file.new"
  chmod 444 "$file.new"
  mv "$file.new" "$file"
}

make postgres_password "$(password)"
# For the key of a provider of embeddings (deploy/remote.env).
[ -e remote.key ] || { : >remote.key && chmod 444 remote.key; }
# For the set-up (as the server's superuser), and for the sidecar. A line is host:port:database:user:password.
make setup.pgpass "*:*:*:postgres:$(cat postgres_password)"
make sidecar.pgpass "*:*:*:embedsidecar_run:$(password)" "*:*:*:embedsidecar_stream:$(password)"

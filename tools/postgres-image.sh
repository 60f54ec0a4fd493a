#!/usr/bin/env bash
# postgres-image.sh MAJOR: makes an image of PostgreSQL with pgvector from the files of tools/postgres.sh, and prints
# its name. make test-image uses it, because it needs no registry then. It supports those settings of the official
# image that our compose files use. Not for real data.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh
. tools/engine.sh

major=${1:?wants a major version of PostgreSQL}
find_engine podman buildah || { echo 'postgres-image.sh: error: podman or buildah is required' >&2 && exit 1; }
tools/postgres.sh "$major" >&2
programs=$(tools/postgres.sh --print "$major")
image=localhost/embedsidecar-postgres:$major-$(cat "$programs/.complete" "$0" | cksum | cut -d' ' -f1)
if "$engine" inspect --type image "$image" >/dev/null 2>&1; then
  echo "$image"
  exit
fi
base=$(tools/base-image.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$programs/." "$work/pg"
cat >"$work/entrypoint.sh" <<'END'
#!/bin/bash
# Like the official image: root becomes postgres; an empty folder gets a database, and the scripts run in it.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA"
  chown -R postgres "$PGDATA"
  chmod 700 "$PGDATA"
  exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  user=${POSTGRES_USER:-postgres} db=${POSTGRES_DB:-${POSTGRES_USER:-postgres}}
  : "${POSTGRES_PASSWORD_FILE:?is not set: a superuser without a password is none}"
  initdb --no-sync --username="$user" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 --locale=C.UTF-8 >/dev/null
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -w -o "-c listen_addresses='' -c unix_socket_directories=/tmp" start >/dev/null
  export PGHOST=/tmp
  [ "$db" = postgres ] || psql -qX -U "$user" -d postgres -v ON_ERROR_STOP=1 -c "CREATE DATABASE \"$db\""
  for script in /docker-entrypoint-initdb.d/*; do
    case $script in
    *.sh) POSTGRES_USER=$user POSTGRES_DB=$db bash "$script" ;;
    *.sql) psql -qX -U "$user" -d "$db" -v ON_ERROR_STOP=1 -f "$script" ;;
    esac
  done
  unset PGHOST
  pg_ctl -D "$PGDATA" -w -m fast stop >/dev/null
fi
# A test shifts the server's clock by the offset in this file.
echo +0 >/tmp/faketime
export LD_PRELOAD=$(echo /usr/lib/*/faketime/libfaketimeMT.so.1) FAKETIME_TIMESTAMP_FILE=/tmp/faketime FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp
END
chmod 755 "$work/entrypoint.sh"
cat >"$work/Dockerfile" <<END
FROM $base
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libxml2 libxslt1.1 libssl3 libgssapi-krb5-2 libzstd1 liblz4-1 libreadline8 tzdata libfaketime && useradd --uid 999 --user-group postgres
COPY pg /usr/local/pg
COPY entrypoint.sh /entrypoint.sh
ENV PATH=/usr/local/pg/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["/entrypoint.sh"]
CMD ["postgres"]
END
"$engine" build --quiet --network host -t "$image" "$work" >&2
echo "$image"

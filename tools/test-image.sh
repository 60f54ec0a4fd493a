#!/usr/bin/env bash
# test-image.sh: runs the container images with compose and by hand, and injects faults. Needs the images of
# tools/image.sh.
#
#   make test-image
#   CHECKS='compose faults' tools/test-image.sh      some of: static alone compose faults core existing packages arm64 reproducible
#   IMAGES=core CHECKS='static alone' tools/test-image.sh      only the image core (make test-image-smoke)
#
# It runs the commands of the documentation with podman and podman-compose in place of docker and docker compose. The
# server is PostgreSQL 17 of tools/postgres.sh, so it needs no registry. All containers are named embedsidecar..., and
# are removed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh
. tools/engine.sh

read -ra parts <<<"${CHECKS:-static alone compose faults core existing packages arm64 reproducible}"
# among WORD...: reports whether one of these checks is selected.
among() {
  local part
  for part; do case " ${parts[*]} " in *" $part "*) return 0 ;; esac done
  return 1
}
tools/need.sh go git engine
if among alone compose faults core existing arm64; then tools/need.sh python; fi
if among compose faults core existing; then tools/need.sh podman; fi
find_engine podman || { echo 'test-image.sh: error: podman does not work' >&2 && exit 1; }
major=${PG_IMAGE:-17}
clone=$PWD
work=$(mktemp -d)
container= # the one that a failure tells of
touch "$work/containers"
binfmt=/proc/sys/fs/binfmt_misc # where the kernel is told who runs programs of another architecture
passed=0
began=$SECONDS

exec 3>&1 # what a check has to say while its output is kept back
say() { printf 'test-image: %s\n' "$*"; }
# check NAME COMMAND...: the command must succeed. Its output is shown if it fails.
check() {
  local name=$1 start=$SECONDS
  shift
  if ! ("$@") >"$work/check.log" 2>&1; then
    tail -n 30 "$work/check.log" >&2
    if [ -n "$container" ]; then podman logs "$container" 2>&1 | tail -n 15 | cut -c1-600 >&2 || true; fi
    say "FAILED $name"
    exit 1
  fi
  passed=$((passed + 1))
  say "ok     $name ($((SECONDS - start)) s)"
}
# eventually SECONDS COMMAND...: until the command succeeds. The last try's output is shown.
eventually() {
  local until=$((SECONDS + $1))
  shift
  while ! "$@" >"$work/eventually.log" 2>&1; do
    if [ "$SECONDS" -gt "$until" ]; then
      cat "$work/eventually.log"
      echo "not in time: $*"
      return 1
    fi
    sleep 0.2
  done
}
refuse() { ! "$@"; }

networks=()
mine() { printf '%s\n' "$@" >>"$work/containers"; } # to be removed at the end; a check is a shell of its own, which could note it nowhere else
cleanup() {
  local status=$?
  set +e
  if [ -n "${compose:-}" ]; then (cd "$work/clone" && "${compose[@]}" down --volumes && "${compose[@]}" -f docker-compose.existing.yml down) >/dev/null 2>&1; fi
  while read -r one; do podman rm --force --time 0 "$one" >/dev/null 2>&1; done <"$work/containers"
  for one in "${networks[@]}"; do podman network rm --force "$one" >/dev/null 2>&1; done
  podman image rm --force localhost/embedsidecar-next:onnx localhost/embedsidecar-again:core localhost/embedsidecar-again:onnx >/dev/null 2>&1
  if [ -e "$work/binfmt" ]; then echo -1 >"$binfmt/embedsidecar-aarch64"; fi
  rm -rf "$work"
  exit "$status"
}
trap cleanup EXIT

# Without systemd, podman cannot run health checks, and warns each time. Podman leaves a file named oom in the current
# folder if a container was killed for memory.
podman() { (cd "$work" && command podman "$@" 2> >(grep -v -i healthcheck >&2)); }
# start NAME ARGUMENT...: runs a container in the background, with all privileges dropped.
start() {
  local name=$1
  shift
  mine "$name"
  podman run --detach --name "$name" --read-only --tmpfs /tmp:size=16m,mode=1777 --cap-drop all --security-opt no-new-privileges "$@" >/dev/null
}
pid() { podman inspect --format '{{.State.Pid}}' "$1"; }
running() { [ "$(podman inspect --format '{{.State.Running}}' "$1")" = true ]; }
in_status() { grep -q "^$2:[[:space:]]*$3\$" "/proc/$(pid "$1")/status"; }
# cgroup CONTAINER OLD NEW: prints a file of its memory cgroup, by its name in cgroup version 1 or 2.
cgroup() {
  local file
  awk -F: -v old="$2" -v new="$3" '$2 ~ /(^|,)memory(,|$)/ { print "/sys/fs/cgroup/memory" $3 "/" old } $1 == 0 { print "/sys/fs/cgroup" $3 "/" new }' "/proc/$(pid "$1")/cgroup" |
    while read -r file; do [ ! -e "$file" ] || cat "$file"; done
}
# peak CONTAINER: prints its highest memory, page cache included.
peak() {
  local most
  most=$(cgroup "$1" memory.max_usage_in_bytes memory.peak)
  if [ -n "$most" ]; then echo "$((most / 1000000)) MB at most"; else echo 'this kernel does not report the peak'; fi
}
oom_kills() { cgroup "$1" memory.oom_control memory.events | awk '$1 == "oom_kill" { print $2 }'; }
memory() { say "       memory of $1: $(podman stats --no-stream --format '{{.MemUsage}}' "$1") now, $(peak "$1")"; }
ended_with() { [ "$(podman inspect --format '{{.State.ExitCode}}' "$1")" = "$2" ]; }

# --- the images' contents ---------------------------------------------------------------------------------------------

bytes() { podman image inspect --format '{{.Size}}' "embedsidecar:$1"; }
# look_into IMAGE PATH...: writes the paths of the image into the file holds, and the contents of PATH into the folder
# tree. Podman hangs if a pipe is closed early, so it writes a file.
look_into() {
  local id
  id=$(podman create "embedsidecar:$1")
  podman export --output "$work/tree.tar" "$id"
  podman rm "$id" >/dev/null
  tar tf "$work/tree.tar" >"$work/holds"
  shift
  rm -rf "$work/tree" && mkdir "$work/tree"
  [ $# = 0 ] || tar xf "$work/tree.tar" -C "$work/tree" "$@"
  rm "$work/tree.tar"
}
no_shell() { look_into "$1" && ! grep -E '(^|/)(sh|bash|dash|busybox|apt|dpkg|python3[^/]*)$' "$work/holds"; }
labelled() { [ "$(podman image inspect --format "{{index .Labels \"org.opencontainers.image.$2\"}}" "embedsidecar:$1")" = "$3" ]; }
lists_modules() { look_into "$1" && grep 'usr/share/doc/embedsidecar/sbom/embedsidecar.cdx.json$' "$work/holds"; }

static() {
  local image
  for image in ${IMAGES:-core onnx}; do
    check "$image: neither shell nor package manager" no_shell "$image"
    check "$image: no other user than 10001" test "$(podman image inspect --format '{{.User}}' "embedsidecar:$image")" = 10001:10001
    check "$image: the label created is the commit's time" labelled "$image" created "$(date --utc --date "@$(git log -1 --format=%ct)" +%Y-%m-%dT%H:%M:%SZ)"
    check "$image: the label revision is the commit" labelled "$image" revision "${REVISION:-$(git rev-parse HEAD)}"
    check "$image: a bill of materials" lists_modules "$image"
    say "       embedsidecar:$image has $(($(bytes "$image") / 1000)) kB, $(($(podman save "embedsidecar:$image" | gzip -6 | wc -c) / 1000)) kB compressed"
  done
  check 'core: below 47 MB' test "$(bytes core)" -lt 47000000 # 40 were the goal; the administration over HTTP and the dashboard took three, OpenTelemetry two
}

# --- the image core alone ---------------------------------------------------------------------------------------------

alone() { by_itself alone core 64m; }
# by_itself NAME IMAGE MEMORY: runs the image without a network, so without a database.
by_itself() {
  local name=$1
  container=embedsidecar_alone
  start "$container" --memory "$3" --network none --env EMBEDSIDECAR_DATABASE_URL=postgres://nobody@127.0.0.1/nothing --env EMBEDSIDECAR_PLUGIN=remote \
    --env EMBEDSIDECAR_PLUGIN_REMOTE_DIALECT=openai --env EMBEDSIDECAR_PLUGIN_REMOTE_URL=https://127.0.0.1/v1 --env EMBEDSIDECAR_PLUGIN_REMOTE_DIMS=3 \
    --env EMBEDSIDECAR_PLUGIN_REMOTE_MODEL=none --env 'EMBEDSIDECAR_PIPELINE=public.docs: body -> embedding' "embedsidecar:$2" run
  check "$name: alive without a database" eventually 60 podman exec "$container" embedsidecar healthcheck
  check "$name: not ready" refuse podman exec "$container" embedsidecar healthcheck --ready
  check "$name: not root, no capability, no new privileges" confined
  check "$name: every line of the log is JSON, on stdout" json_log
  check "$name: SIGTERM stops it cleanly" stopped "$container"
  podman rm --force "$container" >/dev/null
}
stopped() { podman stop --time 30 "$1" >/dev/null && ended_with "$1" 0; }

# --- the commands of the documentation --------------------------------------------------------------------------------

# lines PAPER WORD: prints the first block of shell commands that contains the word.
lines() { awk -v word="$2" '/^```sh$/ { block = ""; inside = 1; next } /^```$/ { if (inside && index(block, word)) { printf "%s", block; exit } inside = 0 } inside { block = block $0 "\n" }' "$1"; }

# copy_to FOLDER: copies the files of the clone that git knows.
copy_to() {
  mkdir -p "$1"
  git ls-files -co --exclude-standard -z | sort -zu | xargs -0 cp --parents -t "$1"
  ln -s "$clone/.git" "$1/.git"
}

papers() {
  local venv=${XDG_CACHE_HOME:-$HOME/.cache}/embedsidecar/compose/venv-1.6.0
  tools/venv.sh "$venv" podman-compose==1.6.0
  mkdir -p "$work/bin"
  # This podman cannot start a container that requires one that has ended. Compose has already waited for it.
  cat >"$work/bin/compose-podman" <<'END'
#!/bin/bash
args=()
for a; do case $a in --requires=*) ;; *) args+=("$a") ;; esac; done
exec podman "${args[@]}"
END
  cat >"$work/bin/docker" <<END
#!/bin/bash
case \$1 in
compose) shift; exec '$venv/bin/podman-compose' --in-pod=false --podman-path '$work/bin/compose-podman' "\$@" ;;
run) shift; exec podman run \${DOCKER_RUN_FLAGS:-} "\$@" ;;
*) exec podman "\$@" ;;
esac
END
  chmod +x "$work"/bin/*
  compose=("$work/bin/docker" compose)
  copy_to "$work/clone"
  export POSTGRES_IMAGE PATH=$work/bin:$PATH
  POSTGRES_IMAGE=$(tools/postgres-image.sh "$major")
}

psql() { podman exec -i "$server" psql -qXAt -h /tmp -U postgres -d "$database" "$@"; }
settled() { command podman exec "$container" embedsidecar wait --caught-up --timeout 20m && command podman exec "$container" embedsidecar verify --deep 100; }

first_try() {
  local script
  script=$(lines docs/containers.md 'docker compose exec sidecar embedsidecar search')
  [ -n "$script" ] || { echo 'docs/containers.md has no lines for compose'; return 1; }
  # The images exist: do not build them again.
  (cd "$work/clone" && bash -euxo pipefail -c "make() { :; }; $script") >"$work/first_try.log" 2>&1 || { tail -n 20 "$work/first_try.log"; return 1; }
  grep -E 'photoflare|shotwell|gthumb|digikam|fotoxx|gimp' "$work/first_try.log"
}

# --- the compose file -------------------------------------------------------------------------------------------------

compose() {
  server=embedsidecar_postgres_1 container=embedsidecar_sidecar_1 database=packages
  check 'the first lines of docs/containers.md' first_try
  (cd "$work/clone" && "${compose[@]}" up --detach) >"$work/up.log" 2>&1 || { tail "$work/up.log" >&2 && exit 1; }
  local from
  from=$(date -d "$(podman inspect --format '{{.State.StartedAt}}' "$container" | sed 's/ [A-Z]*$//')" +%s%3N)
  check 'vectors come' eventually 600 some_vectors
  say "       from the start of the container to the first vectors: $(($(date +%s%3N) - from)) ms"
  check 'not root, no capability, no new privileges' confined
  check 'the root file system is read-only' test "$(podman inspect --format '{{.HostConfig.ReadonlyRootfs}}' "$container")" = true
  check 'the server knows it as the least-privileged roles only' roles
  check 'ready: by itself, and from outside' eventually 120 podman exec "$container" embedsidecar healthcheck --ready
  check 'ready: from outside' curl -fsS --noproxy '*' http://127.0.0.1:7471/readyz
  check 'every row has the vector of its text' settled
  check 'status' podman exec "$container" embedsidecar status
  check 'no password in inspect or log' no_secrets
  check 'every line of the log is JSON, on stdout' json_log
  check 'nothing was written into the container' unchanged
  memory "$container"
}
some_vectors() { [ "$(psql -c 'SELECT count(embedding) > 0 FROM packages')" = t ]; }
confined() {
  in_status "$container" CapEff 0000000000000000 && in_status "$container" CapBnd 0000000000000000 && in_status "$container" NoNewPrivs 1 &&
    in_status "$container" Uid '10001[[:space:]]10001[[:space:]]10001[[:space:]]10001'
}
roles() {
  local found
  found=$(psql -c "SELECT string_agg(DISTINCT usename, ' ' ORDER BY usename) FROM pg_stat_activity WHERE client_addr IS NOT NULL AND application_name LIKE 'embedsidecar%'")
  echo "$found"
  [ "$found" = 'embedsidecar_run embedsidecar_stream' ]
}
no_secrets() {
  local one secret
  for one in postgres init roles sidecar; do
    { command podman inspect "embedsidecar_${one}_1" && command podman logs "embedsidecar_${one}_1"; } >"$work/told" 2>&1
    for secret in $(cut -d: -f5 "$work/clone"/deploy/secrets/*.pgpass); do
      if grep -q "$secret" "$work/told"; then
        echo "a password shows in inspect or log of $one"
        return 1
      fi
    done
  done
}
json_log() {
  command podman logs "$container" 2>"$work/stderr" | python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
assert lines and all("msg" in line for line in lines), lines'
  cat "$work/stderr"
  [ ! -s "$work/stderr" ]
}
# Ignore the engine's own mount points.
unchanged() { ! podman diff "$container" | grep -vE '^[AC] /(etc|run|tmp|dev|proc|sys|var|var/run)?(/|$)'; }

# --- faults -----------------------------------------------------------------------------------------------------------

change() { psql -c "UPDATE packages SET summary = summary || ' $1' WHERE id % 20 = $((RANDOM % 20))"; }

faults() {
  server=embedsidecar_postgres_1 container=embedsidecar_sidecar_1 database=packages
  running "$container" || { echo 'test-image.sh: the checks "faults" come after "compose"' >&2 && exit 2; }
  check 'SIGTERM: a clean stop within the grace period' terminated
  check 'after SIGTERM' settled
  check 'kill -9' killed KILL "$container"
  check 'after kill -9' settled
  check 'kill -9 of the plugin' plugin_killed
  check 'after kill -9 of the plugin' settled
  check 'restart of the server' server_restarted
  check 'after the restart of the server' settled
  check 'a full /tmp, and a plugin that must start: every row has its vector' full_tmp
  check 'after a full /tmp' settled
  check 'OOM of the plugin: the sidecar keeps running' oom
  check 'after OOM of the plugin' settled
  check 'the clock of the server an hour ahead, then back' clock
  check 'after the steps of the clock' settled
  check 'a rolling replacement by an image with one more pipeline' rolling
  check 'after the replacement' settled
}
terminated() {
  change term
  stopped "$container" || return 1
  podman start "$container" >/dev/null
}
killed() {
  change kill
  podman kill --signal "$1" "$2" >/dev/null
  eventually 60 refuse running "$2"
  podman start "$2" >/dev/null
}
plugin_of() {
  local child
  for child in $(cat "/proc/$(pid "$1")"/task/*/children); do
    grep -aq embedsidecar-onnx "/proc/$child/cmdline" && echo "$child" && return
  done
  return 1
}
plugin_killed() {
  eventually 120 plugin_of "$container" || return 1
  change plugin
  kill -KILL "$(plugin_of "$container")"
}
server_restarted() {
  change before
  podman restart --time 20 "$server" >/dev/null
  eventually 120 psql -c 'SELECT 1'
  change after
}
# Sockets need no space: a plugin must start and work although /tmp is full.
full_tmp() {
  local root old
  eventually 120 plugin_of "$container" || return 1
  root=/proc/$(pid "$container")/root old=$(plugin_of "$container")
  dd if=/dev/zero of="$root/tmp/full" bs=1M 2>/dev/null || true
  change full
  kill -KILL "$old"
  settled || return 1
  refuse dd if=/dev/zero of="$root/tmp/more" bs=4096 count=1 || return 1
  [ "$(plugin_of "$container")" != "$old" ] || return 1
  rm "$root"/tmp/full
}
logged() { command podman logs "${2:-$container}" 2>&1 | grep -q "\"msg\":\"$1\""; }
# A container with too little memory for the model replaces that of the compose file.
small() { # small MEMORY
  start embedsidecar_small --network embedsidecar_default --memory "$1" --volume "$work/clone/deploy/secrets/sidecar.pgpass:/run/secrets/sidecar.pgpass:ro" \
    --env PGPASSFILE=/run/secrets/sidecar.pgpass --env EMBEDSIDECAR_LOG_FORMAT=json \
    --env 'EMBEDSIDECAR_DATABASE_URL=postgres://embedsidecar_run@postgres:5432/packages?sslmode=disable' \
    --env 'EMBEDSIDECAR_STREAM_URL=postgres://embedsidecar_stream@postgres:5432/packages?sslmode=disable' embedsidecar:onnx run --no-init
}
some_killed() { [ "$(oom_kills "$1")" -gt 0 ]; }
oom() {
  podman stop --time 30 "$container" >/dev/null
  change oom
  small 128m
  eventually 300 some_killed embedsidecar_small || return 1
  podman exec embedsidecar_small embedsidecar healthcheck || return 1
  podman rm --force --time 30 embedsidecar_small >/dev/null
  # With the memory that the documentation names, nothing is killed.
  small 512m
  command podman exec embedsidecar_small embedsidecar wait --caught-up --timeout 20m || return 1
  refuse some_killed embedsidecar_small || return 1
  memory embedsidecar_small >&3
  podman rm --force --time 30 embedsidecar_small >/dev/null
  podman start "$container" >/dev/null
}
# Leases and retries use the server's clock, the sidecar's timers use none. Only the server's clock can be shifted here.
clock() {
  local offset
  for offset in +3600 +0; do
    podman exec "$server" sh -c "echo $offset >/tmp/faketime"
    change "$offset"
    eventually 60 offset_is "$offset" || return 1
  done
}
offset_is() { # the server's now() against this machine's
  local difference
  difference=$(($(psql -c 'SELECT extract(epoch FROM now())::bigint') - $(date +%s)))
  [ "$difference" -ge $(($1 - 30)) ] && [ "$difference" -le $(($1 + 30)) ]
}
rolling() {
  local new=localhost/embedsidecar-next:onnx one
  printf 'FROM localhost/embedsidecar:onnx\nLABEL org.opencontainers.image.version=next\n' >"$work/Next"
  podman build --quiet --format docker -t "$new" -f "$work/Next" "$work" >/dev/null
  local two='public.packages: name, summary -> embedding
public.packages: summary -> table summaries'
  # Rows change meanwhile.
  (while [ ! -e "$work/replaced" ]; do change rolling && sleep 0.5; done) &
  local writer=$!
  for one in init 'roles --yes'; do
    # shellcheck disable=SC2086 # two words
    podman run --rm --network embedsidecar_default --volume "$work/clone/deploy/secrets/setup.pgpass:/run/secrets/setup.pgpass:ro" \
      --env PGPASSFILE=/run/secrets/setup.pgpass --env EMBEDSIDECAR_PIPELINE="$two" \
      --env 'EMBEDSIDECAR_DATABASE_URL=postgres://postgres@postgres:5432/packages?sslmode=disable' "$new" $one || return 1
  done
  local options=(--network embedsidecar_default --memory 512m --volume "$work/clone/deploy/secrets/sidecar.pgpass:/run/secrets/sidecar.pgpass:ro"
    --env PGPASSFILE=/run/secrets/sidecar.pgpass --env EMBEDSIDECAR_LOG_FORMAT=json --env EMBEDSIDECAR_PIPELINE="$two"
    --env 'EMBEDSIDECAR_DATABASE_URL=postgres://embedsidecar_run@postgres:5432/packages?sslmode=disable'
    --env 'EMBEDSIDECAR_STREAM_URL=postgres://embedsidecar_stream@postgres:5432/packages?sslmode=disable')
  start embedsidecar_next "${options[@]}" "$new" run --no-init
  eventually 120 podman exec embedsidecar_next embedsidecar healthcheck --ready || return 1
  stopped "$container" || return 1
  eventually 120 logged streaming embedsidecar_next || return 1
  touch "$work/replaced"
  wait "$writer"
  command podman exec embedsidecar_next embedsidecar wait --caught-up --timeout 20m || return 1
  # In 512 MB there is no room for the model of another process.
  command podman run --rm "${options[@]}" "$new" verify --deep 100 || return 1
  [ "$(psql -c 'SELECT count(*) = (SELECT count(*) FROM packages) FROM summaries')" = t ] || return 1
  podman rm --force --time 30 embedsidecar_next >/dev/null
  podman start "$container" >/dev/null
}

# --- the image core in 64 MB, with the image onnx as the server of models ---------------------------------------------

core() {
  server=embedsidecar_core_db container=embedsidecar_core database=postgres
  networks+=(embedsidecar_core)
  podman network create embedsidecar_core >/dev/null
  printf 'password' >"$work/password" && echo '*:*:*:postgres:password' >"$work/pgpass" && chmod 644 "$work/password" "$work/pgpass"
  mine "$server"
  podman run --detach --name "$server" --network embedsidecar_core --volume "$work/password:/password:ro" --env POSTGRES_PASSWORD_FILE=/password \
    "$POSTGRES_IMAGE" postgres -c wal_level=logical >/dev/null
  # The program makes a token for the server of models.
  install -d -m 777 "$work/tokens"
  podman run --rm --user 10001:10001 --volume "$work/tokens:/tokens" embedsidecar:core token create core --tokens-file /tokens/tokens >"$work/tokens/key"
  chmod 644 "$work/tokens/key"
  start embedsidecar_model --network embedsidecar_core --network-alias model --memory 512m --volume "$work/tokens:/tokens:ro" embedsidecar:onnx serve --http 0.0.0.0:7470 --tokens-file /tokens/tokens
  eventually 120 psql -c 'CREATE EXTENSION vector'
  psql -c "CREATE TABLE docs (id int PRIMARY KEY, body text); INSERT INTO docs SELECT i, 'row number ' || i FROM generate_series(1, 500) i"
  start "$container" --network embedsidecar_core --memory 64m --volume "$work/tokens:/tokens:ro" --env EMBEDSIDECAR_LOG_FORMAT=json \
    --volume "$work/pgpass:/pgpass:ro" --env PGPASSFILE=/pgpass --env "EMBEDSIDECAR_DATABASE_URL=postgres://postgres@$server/postgres?sslmode=disable" --env EMBEDSIDECAR_PLUGIN=remote \
    --env EMBEDSIDECAR_PLUGIN_REMOTE_DIALECT=openai --env EMBEDSIDECAR_PLUGIN_REMOTE_URL=http://model:7470/v1 \
    --env EMBEDSIDECAR_PLUGIN_REMOTE_ALLOW_HTTP=true --env EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY_FILE=/tokens/key \
    --env EMBEDSIDECAR_PLUGIN_REMOTE_MODEL=all-MiniLM-L6-v2 --env EMBEDSIDECAR_PLUGIN_REMOTE_DIMS_BY=model \
    --env 'EMBEDSIDECAR_PIPELINE=public.docs: body -> table docs_embedding' embedsidecar:core run
  check 'core in 64 MB: ready' eventually 120 podman exec "$container" embedsidecar healthcheck --ready
  check 'core in 64 MB: every row has the vector of its text' settled
  check 'core in 64 MB: it was not killed' running "$container"
  memory "$container"
  podman rm --force --time 20 "$container" embedsidecar_model "$server" >/dev/null
}

# --- with an existing database: the commands of docs/containers.md ----------------------------------------------------

existing() {
  server=db database=mydb container=
  # The sidecar of the other compose file uses the port of the probes.
  if [ -n "${compose:-}" ]; then (cd "$work/clone" && "${compose[@]}" down --volumes) >/dev/null 2>&1; fi
  networks+=(embedsidecar-existing_default)
  podman network create embedsidecar-existing_default >/dev/null
  local secrets=$work/clone/deploy/secrets tls=$work/tls
  (cd "$work/clone" && deploy/secrets.sh)
  rm -f "$secrets/sidecar.pgpass" && (cd "$work/clone" && deploy/secrets.sh)
  mkdir -p "$tls"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$tls/ca.key" -out "$tls/ca.pem" 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=db -keyout "$tls/server.key" -out "$tls/server.csr" 2>/dev/null
  openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 2 -extfile <(echo subjectAltName=DNS:db) -out "$tls/server.pem" 2>/dev/null
  chown 999:999 "$tls/server.key" && chmod 600 "$tls/server.key" && chmod 755 "$tls"
  install -m 444 "$tls/ca.pem" "$secrets/ca.pem"
  printf '*:*:*:app:secret-of-app\n' >"$secrets/app.pgpass" && cp "$secrets/app.pgpass" "$secrets/owner.pgpass" && chmod 444 "$secrets"/*.pgpass
  mine "$server" sidecar
  podman run --detach --name "$server" --network embedsidecar-existing_default --publish 127.0.0.1:5499:5432 --volume "$tls:/tls:ro" --volume "$secrets/postgres_password:/password:ro" \
    --env POSTGRES_DB="$database" --env POSTGRES_PASSWORD_FILE=/password "$POSTGRES_IMAGE" postgres -c wal_level=logical -c ssl=on \
    -c ssl_cert_file=/tls/server.pem -c ssl_key_file=/tls/server.key >/dev/null
  eventually 120 psql -c 'CREATE EXTENSION vector'
  psql -c "CREATE ROLE app LOGIN REPLICATION PASSWORD 'secret-of-app'; GRANT CREATE ON DATABASE mydb TO app; GRANT CREATE ON SCHEMA public TO app" \
    -c "SET ROLE app; CREATE TABLE docs (id int PRIMARY KEY, title text, body text); INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i FROM generate_series(1, 300) i"
  container=sidecar
  check 'the line docker run of docs/containers.md, with sslmode=verify-full' paper 'docker run'
  check 'a certificate of an untrusted CA is refused' untrusted
  psql -c "SET client_min_messages = error; SET ROLE app; DROP SCHEMA embedsidecar CASCADE" -c "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots" -c 'DROP PUBLICATION embedsidecar' -c 'DROP TABLE docs_embedding' >/dev/null
  container=embedsidecar-existing_sidecar_1
  check 'the commands of docs/containers.md with an existing database' paper 'docker-compose.existing.yml'
}
paper() {
  local script
  script=$(lines docs/containers.md "$1")
  [ -n "$script" ] || { echo "docs/containers.md has no lines with $1"; return 1; }
  # The server is in a network of its own; psql runs in its container.
  (cd "$work/clone" && PATH=$(tools/postgres.sh --print "$major")/bin:$PATH DOCKER_RUN_FLAGS='--network embedsidecar-existing_default' \
    SUPERUSER_URL="postgres://postgres:$(cat deploy/secrets/postgres_password)@127.0.0.1:5499/$database" bash -euxo pipefail -c "$script")
}
untrusted() {
  ! podman run --rm --network embedsidecar-existing_default --env PGPASSWORD=secret-of-app \
    --env 'EMBEDSIDECAR_DATABASE_URL=postgres://app@db:5432/mydb?sslmode=verify-full' embedsidecar:core status >"$work/untrusted" 2>&1 && cat "$work/untrusted" && grep -q certificate "$work/untrusted"
}

# --- packages ---------------------------------------------------------------------------------------------------------

packages() {
  container=
  tools/package.sh >/dev/null
  local base
  base=$(tools/base-image.sh)
  check 'deb: installed, run, exposed to 1.5 of 10 at most, removed' podman run --rm --network host --volume "$clone/dist:/dist:ro" "$base" bash -euxo pipefail -c '
    apt-get update -qq; apt-get install -y -qq --no-install-recommends systemd /dist/embedsidecar_*.deb /dist/embedsidecar-onnx_*.deb
    embedsidecar version; embedsidecar embed "a text" | grep -q "^\[" ; test "$(stat -c %a /etc/embedsidecar/pgpass)" = 600
    dpkg --listfiles embedsidecar >/tmp/files # of an image like this one dpkg leaves manual pages out
    for file in man/man1/embedsidecar.1.gz bash-completion/completions/embedsidecar zsh/vendor-completions/_embedsidecar fish/vendor_completions.d/embedsidecar.fish; do
      grep -qx "/usr/share/$file" /tmp/files; done
    . /usr/share/bash-completion/completions/embedsidecar; complete -p embedsidecar
    dpkg-deb --fsys-tarfile /dist/embedsidecar_*.deb | tar xO ./usr/share/man/man1/embedsidecar.1.gz | zcat | grep -q "^.TH EMBEDSIDECAR"
    systemd-analyze verify /usr/lib/systemd/system/embedsidecar.service
    touch /etc/embedsidecar/one.yaml; systemd-analyze verify embedsidecar@one.service
    grep -q "^RuntimeDirectory=embedsidecar/%i$" /usr/lib/systemd/system/embedsidecar@.service
    level=$(systemd-analyze security --offline=true /usr/lib/systemd/system/embedsidecar.service | sed -n "s/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p")
    echo "exposure $level"; test "${level%.*}${level#*.}" -le 15
    echo "# mine" >>/etc/embedsidecar/embedsidecar.yaml
    apt-get remove -y -qq embedsidecar embedsidecar-onnx; test ! -e /usr/bin/embedsidecar; test ! -e /usr/lib/embedsidecar; grep -q "# mine" /etc/embedsidecar/embedsidecar.yaml
    apt-get purge -y -qq embedsidecar; test ! -e /etc/embedsidecar'
  check "rpm: installed, run, removed (by Debian's rpm)" podman run --rm --network host --volume "$clone/dist:/dist:ro" "$base" bash -euxo pipefail -c '
    apt-get update -qq; apt-get install -y -qq --no-install-recommends rpm libstdc++6
    rpm --install --nodeps /dist/embedsidecar-*.rpm
    embedsidecar version; embedsidecar embed "a text" | grep -q "^\["
    zcat /usr/share/man/man1/embedsidecar.1.gz | grep -q "^.TH EMBEDSIDECAR"; grep -q "^#compdef embedsidecar" /usr/share/zsh/site-functions/_embedsidecar
    . /usr/share/bash-completion/completions/embedsidecar; complete -p embedsidecar; test -s /usr/share/fish/vendor_completions.d/embedsidecar.fish
    rpm --query --requires embedsidecar-onnx | grep -q "glibc >= 2.34"; rpm --verify embedsidecar embedsidecar-onnx --nodeps
    rpm --erase embedsidecar-onnx embedsidecar; test ! -e /usr/bin/embedsidecar; test ! -e /usr/lib/embedsidecar; test ! -e /usr/share/embedsidecar'
}

# --- the other architecture -------------------------------------------------------------------------------------------

arm64() {
  container=
  podman manifest rm embedsidecar:all >/dev/null 2>&1 || true
  check 'arm64: the commands of docs/containers.md build it, and put both under one name' both
  check 'arm64: the programs are for arm64' of_arm64
  check 'arm64: qemu is registered with the kernel' emulated
  by_itself 'arm64, emulated: core' core-arm64 256m # qemu wants some for itself
  container=
  check 'arm64, emulated: onnx embeds a text, with the vector that amd64 has' same_vector
  say "       embedsidecar:core-arm64 has $(($(bytes core-arm64) / 1000)) kB, embedsidecar:onnx-arm64 $(($(bytes onnx-arm64) / 1000)) kB"
}
both() {
  lines_run docs/containers.md ARCH=arm64 || return 1
  podman manifest inspect embedsidecar:all >"$work/all" && podman manifest rm embedsidecar:all && grep '"architecture": "amd64"' "$work/all" && grep '"architecture": "arm64"' "$work/all"
}
# lines_run PAPER WORD: runs a block of a paper in the copy of the clone.
lines_run() {
  local script
  script=$(lines "$1" "$2")
  [ -n "$script" ] || { echo "$1 has no lines with $2"; return 1; }
  [ -d "$work/clone" ] || copy_to "$work/clone"
  (cd "$work/clone" && bash -euxo pipefail -c "$script")
}
of_arm64() {
  local image file
  for image in core onnx; do
    look_into "$image-arm64" usr/bin/embedsidecar usr/lib/embedsidecar/plugins || return 1
    for file in "$work"/tree/usr/bin/embedsidecar "$work"/tree/usr/lib/embedsidecar/plugins/*; do
      echo "$file"
      [ "$(od -An -tx1 -j18 -N2 "$file" | tr -d ' ')" = b700 ] || return 1
    done
  done
}
# Registers qemu with the kernel for programs of the other architecture; the test removes it at the end.
emulated() {
  if grep -qs enabled "$binfmt/qemu-aarch64"; then return; fi
  tools/need.sh qemu || return 1
  [ -e "$binfmt/register" ] || mount -t binfmt_misc none "$binfmt" || return 1
  if grep -qs enabled "$binfmt"/{qemu,embedsidecar}-aarch64; then return; fi
  touch "$work/binfmt"
  printf '%s' ':embedsidecar-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' >"$binfmt/register"
}
# The default model takes minutes on an emulated processor, because the plugin first tests the library with products of
# its size. The library crashes if the kernel describes another processor than the one it runs on.
same_vector() {
  go run ./tools/tinymodel "$work/tiny" || return 1
  local image
  for image in onnx onnx-arm64; do
    podman run --rm --read-only --tmpfs /tmp --tmpfs /sys/devices/system/cpu:notmpcopyup --cap-drop all --volume "$work/tiny:/models/tiny:ro" \
      "embedsidecar:$image" embed --model /models/tiny 'a text' >"$work/$image.json" || return 1
  done
  python3 -c '
import json, sys
one, other = (json.load(open(name)) for name in sys.argv[1:])
assert len(one) == len(other) == 384, (len(one), len(other))
difference = max(abs(a - b) for a, b in zip(one, other))
print("largest difference", difference)
assert difference < 1e-6' "$work/onnx-arm64.json" "$work/onnx.json"
}

# --- two builds of a commit -------------------------------------------------------------------------------------------

# The second build is in another folder, with other permissions, at another time, without cached layers and packages.
reproducible() {
  container=
  (umask 077 && copy_to "$work/again")
  mkdir "$work/tmp"
  local image
  check 'reproducible: a second build of both images, without a cache' again
  for image in core onnx; do check "reproducible: $image has the same layers" same_layers "$image"; done
}
again() { TMPDIR=$work/tmp IMAGE=embedsidecar-again IMAGE_FLAGS=--no-cache REVISION=${REVISION:-} VERSION=${VERSION:-} "$work/again/tools/image.sh"; }
same_layers() {
  local of name
  for name in embedsidecar embedsidecar-again; do
    podman image inspect --format '{{range .RootFS.Layers}}{{println .}}{{end}}' "$name:$1" >"$work/layers.$name"
  done
  if cmp "$work"/layers.*; then return; fi
  for name in embedsidecar embedsidecar-again; do
    rm -f "$work/save.tar"
    podman save --quiet --output "$work/save.tar" "$name:$1" || return 1
    mkdir -p "$work/files.$name" && tar xf "$work/save.tar" -C "$work/files.$name"
    for of in "$work/files.$name"/*.tar; do tar --full-time -tvf "$of"; done | sort >"$work/list.$name"
  done
  diff "$work"/list.*
  return 1
}

if among compose faults core existing; then papers; fi
for part in "${parts[@]}"; do "$part"; done
say "$passed checks passed in $((SECONDS - began)) s"

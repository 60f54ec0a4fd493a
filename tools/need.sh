#!/usr/bin/env bash
# need.sh: checks the system packages that a build, a test run or the demo needs. As root on Debian or Ubuntu it
# installs the missing ones; otherwise it prints what to install.
#
#   tools/need.sh go cc python      # any of: go cc python git chromium npm engine podman qemu promtool
#
# EMBEDSIDECAR_NO_INSTALL=1: only prints. tools/postgres.sh, tools/fetch-onnxruntime.sh and tools/fetch-model.sh fetch
# PostgreSQL, ONNX Runtime and the model, without changing the system.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. tools/retry.sh

say() { printf 'need.sh: %s\n' "$*" >&2; }
# die MESSAGE [HINT...]
die() {
    say "error: $1"
    shift
    for hint in "$@"; do say "hint: $hint"; done
    exit 1
}

work=$(mktemp -d) || die 'cannot make a temporary folder' 'free some space in the folder for temporary files, or set TMPDIR to another'
trap 'rm -rf "$work"' EXIT

# The oldest Go that can fetch the one of go.mod. Debian 12's is older.
oldest_go=1.21
wanted_go=$(awk '$1 == "go" { print $2; exit }' go.mod)

check_go() {
    local found
    command -v go >/dev/null || die 'Go is not installed' \
        "install Go $wanted_go or newer from go.dev/dl (any Go from $oldest_go on fetches $wanted_go by itself), and put it into PATH"
    found=$(GOTOOLCHAIN=local go env GOVERSION 2>"$work/go" | sed 's/^go//')
    if [ -z "$found" ] || [ "$(printf '%s\n%s\n' "$oldest_go" "$found" | sort -V | head -1)" != "$oldest_go" ]; then
        die "Go ${found:-($(command -v go))} is too old" "install Go $wanted_go or newer from go.dev/dl"
    fi
    retry go version >"$work/go" 2>&1 || die "Go $found cannot get Go $wanted_go: $(tail -1 "$work/go")" \
        "check the network and go env GOPROXY GOTOOLCHAIN, or install Go $wanted_go from go.dev/dl"
    # Fetches the modules that builds and tests need, with retries on network errors. Other errors are reported later.
    if ! go list -deps -test ./... >/dev/null 2>"$work/modules" && grep -qiE 'dial tcp|time(d )?out|connection (re|closed|aborted)|(: |unexpected )EOF|: 50[0-9] ' "$work/modules"; then
        retry go list -deps -test ./... >/dev/null 2>&1 || true
    fi
}

# has_cc compiles a program, because a bare gcc comes without the C library's headers.
has_cc() {
    local -a cc
    read -r -a cc <<<"${CC:-$( (command -v go >/dev/null && go env CC) || echo gcc)}"
    command -v "${cc[0]}" >/dev/null || return 1
    printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return EXIT_SUCCESS; }\n' >"$work/cc.c"
    "${cc[@]}" -o "$work/cc" "$work/cc.c" -pthread >"$work/cc.log" 2>&1
}
has_engine() ( . tools/engine.sh && find_engine docker podman buildah )
has_python() { command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; }
has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

missing=() # what, for a person
packages=() # what, for apt
lacks() { # lacks WHAT PACKAGE...
    missing+=("$1")
    shift
    packages+=("$@")
}

check() {
    local want
    missing=() packages=()
    for want in "$@"; do
        case $want in
        go) ;;
        cc) has_cc || lacks 'a C compiler (for the ONNX plugin and for pgvector)' gcc libc6-dev ;;
        engine) has_engine || lacks 'a container engine (docker, podman or buildah) that answers' podman runc containernetworking-plugins ;;
        podman) # with what compose files need of it: names of containers as names of hosts
            command -v podman >/dev/null || lacks podman podman runc containernetworking-plugins
            { command -v iptables && [ -x /usr/lib/cni/dnsname ]; } >/dev/null || lacks "podman's networks with names" iptables golang-github-containernetworking-plugin-dnsname dnsmasq-base
            command -v openssl >/dev/null || lacks openssl openssl
            command -v curl >/dev/null || lacks curl curl
            ;;
        qemu) command -v qemu-aarch64-static >/dev/null || lacks 'qemu, which runs programs of arm64' qemu-user-static ;;
        promtool) command -v promtool >/dev/null || lacks "promtool, of Prometheus" prometheus ;;
        chromium) # the browser that the dashboard's test looks through
            { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || lacks 'Chromium' chromium fonts-dejavu-core
            ;;
        npm) command -v npm >/dev/null || lacks "npm, which fetches axe-core" npm ;;
        git) command -v git >/dev/null || lacks git git ;;
        python)
            has_python || lacks 'Python 3.8 or newer (it makes the model)' python3
            has_pip || lacks "Python's pip" python3-pip
            has_venv || lacks "Python's venv" python3-venv
            ;;
        *) die "nothing is known about '$want'" 'it takes: go cc python git chromium npm engine podman qemu promtool' ;;
        esac
    done
}

list() { # list WORD...: joined by ", "
    local IFS=,
    printf '%s' "$*" | sed 's/,/, /g'
}

for want in "$@"; do
    if [ "$want" = go ]; then check_go; fi
done
check "$@"
[ ${#missing[@]} -gt 0 ] || exit 0

by_hand="Debian, Ubuntu: sudo apt-get install -y ${packages[*]}"
if [ "$(uname -s)" = Darwin ]; then by_hand='macOS: xcode-select --install; brew install python3'; fi
if [ -n "${EMBEDSIDECAR_NO_INSTALL:-}" ]; then
    die "missing: $(list "${missing[@]}")" "$by_hand"
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    die "missing: $(list "${missing[@]}")" "$by_hand" 'as root on Debian or Ubuntu this script installs them by itself'
fi

say "missing: $(list "${missing[@]}"); installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=5)
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${packages[@]}"; } >"$work/apt.log" 2>&1; then
    tail -10 "$work/apt.log" >&2
    if grep -qi 'no space left' "$work/apt.log"; then die 'the disk is full' 'free some space, then run this again'; fi
    die "apt-get could not install ${packages[*]}, see above" 'check the network and /etc/apt, then run this again' "$by_hand"
fi
check "$@"
[ ${#missing[@]} -eq 0 ] || die "still missing after installing ${packages[*]}: $(list "${missing[@]}")" \
    'another program of that name may come first in PATH'

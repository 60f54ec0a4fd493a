#!/usr/bin/env bash
# image.sh: builds the container images embedsidecar:core and embedsidecar:onnx with docker, podman or buildah.
#
#   tools/image.sh                     both, for this machine's architecture
#   ARCH=arm64 tools/image.sh core     one, for another: embedsidecar:core-arm64
#   IMAGE=again IMAGE_FLAGS=--no-cache tools/image.sh      another name, and flags for the engine
#
# It starts from the official images of Go, Rust and Debian. Without access to a registry it starts from an image of
# tools/base-image.sh, with this machine's Go and Debian's Rust. GO_IMAGE, RUST_IMAGE and BASE_IMAGE name others. The
# settings of this machine's clients (GOPROXY, proxies, indexes of pip and cargo, certificate authorities) are passed as
# secrets, so no layer and no history contains them. Layers have the commit's time, so that builds are reproducible.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh
. tools/engine.sh

say() { printf 'image.sh: %s\n' "$*" >&2; }
die() {
  say "error: $1"
  shift
  for hint; do say "hint: $hint"; done
  exit 1
}

tools/need.sh go git engine
find_engine docker podman buildah || die 'there is no container engine that answers: docker, podman or buildah'
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(core onnx)
own=$(go env GOHOSTARCH)
arch=${ARCH:-$own}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || true)}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "CREATED=$(date --utc --date "@$epoch" +%Y-%m-%dT%H:%M:%SZ)")

# The settings of this machine's clients.
{
  for name in GOPROXY GONOSUMDB GONOSUMCHECK GONOPROXY GOPRIVATE GOSUMDB; do
    value=$(go env "$name" 2>/dev/null || true)
    [ -z "$value" ] || printf '%s=%s\n' "$name" "$value"
  done
  env | grep -E '^(HTTPS?_PROXY|NO_PROXY|https?_proxy|no_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST))=' || true
  if index=$(python3 -m pip config get global.index-url 2>/dev/null); then printf 'PIP_INDEX_URL=%s\n' "$index"; fi
} >"$work/environment"
flags+=(--secret "id=environment,src=$work/environment")
ca=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ ! -s "$ca" ] || flags+=(--secret "id=ca,src=$ca")
for cargo in "${CARGO_HOME:-${HOME:-}/.cargo}"/config.toml "${CARGO_HOME:-${HOME:-}/.cargo}"/config; do
  if [ -s "$cargo" ]; then
    flags+=(--secret "id=cargo,src=$cargo")
    break
  fi
done

# The base images of the stages.
if [ -n "${GO_IMAGE:-}${RUST_IMAGE:-}${BASE_IMAGE:-}" ]; then
  for name in GO_IMAGE RUST_IMAGE BASE_IMAGE; do [ -z "${!name:-}" ] || flags+=(--build-arg "$name=${!name}"); done
elif [ "$engine" != docker ] && ! timeout 60 "$engine" pull --quiet "docker.io/library/$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)" >/dev/null 2>&1; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    die 'no registry of images can be reached, and a base can be made by root on Debian or Ubuntu only' 'name images that can be had: GO_IMAGE, RUST_IMAGE, BASE_IMAGE'
  say 'no registry of images can be reached: the images begin with Debian as this machine gets it, and with its Go'
  base=$(tools/base-image.sh)
  for name in GO_IMAGE RUST_IMAGE BASE_IMAGE; do flags+=(--build-arg "$name=$base"); done
  flags+=(--volume "$(go env GOROOT):/usr/local/go:ro")
fi

case $engine in
docker)
  export DOCKER_BUILDKIT=1
  flags+=(--platform "linux/$arch" --build-arg "SOURCE_DATE_EPOCH=$epoch")
  ;;
*)
  # Only docker's format has health checks. Buildah does not set BUILDPLATFORM by itself.
  flags+=(--format docker --platform "linux/$arch" --build-arg "BUILDPLATFORM=linux/$own" --timestamp "$epoch" --network host --layers)
  ;;
esac

for target in "${targets[@]}"; do
  name=${IMAGE:-embedsidecar}:$target
  [ "$arch" = "$own" ] || name+=-$arch
  say "building $name with $engine"
  # shellcheck disable=SC2086 # IMAGE_FLAGS are several words
  "$engine" build "${flags[@]}" ${IMAGE_FLAGS:-} --target "$target" -t "$name" . >&2
  echo "$name"
done

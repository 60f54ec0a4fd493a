#!/usr/bin/env bash
# in-image.sh: runs a command of the Dockerfile with the secrets of tools/image.sh; no layer keeps them.
#
#   tools/in-image.sh go mod download
#   tools/in-image.sh --for arm64 make build-core      compiles for another architecture; cgo and Rust by Debian's cross compiler
#
# If the image has no Rust, it installs Debian's: the newer package (rustc-web) that Debian builds its browsers with.
#
# Optional secrets: environment (lines NAME=VALUE: GOPROXY, HTTPS_PROXY, PIP_INDEX_URL ...), ca (the certificate
# authorities of a network that intercepts TLS).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/retry.sh"

if [ -s /run/secrets/environment ]; then
  while IFS= read -r line; do export "${line?}"; done </run/secrets/environment
fi
if [ -s /run/secrets/ca ]; then
  export SSL_CERT_FILE=/run/secrets/ca CARGO_HTTP_CAINFO=/run/secrets/ca PIP_CERT=/run/secrets/ca REQUESTS_CA_BUNDLE=/run/secrets/ca CURL_CA_BUNDLE=/run/secrets/ca
fi

if [ "${1:-}" = --for ]; then
  arch=$2
  shift 2
  export GOOS=linux GOARCH=$arch
  case $arch in
  amd64) triple=x86_64-linux-gnu machine=x86_64 ;;
  arm64) triple=aarch64-linux-gnu machine=aarch64 ;;
  *)
    echo "in-image.sh: error: unknown architecture '$arch': amd64 and arm64 can be built" >&2
    exit 2
    ;;
  esac
  export ONNXRUNTIME_PLATFORM=Linux-$machine
  own=$(dpkg --print-architecture)
  case "$*" in *build-tokenizers.sh*) rust=yes ;; *) rust= ;; esac
  case "$*" in *build-tokenizers.sh* | *build-onnx*) c=yes ;; *) c= ;; esac
  if [ "$arch" != "$own" ]; then
    export CC=$triple-gcc CARGO_BUILD_TARGET=$machine-unknown-linux-gnu
    export "CC_${machine}_unknown_linux_gnu=$CC" "CXX_${machine}_unknown_linux_gnu=$triple-g++"
    if [ -n "$rust" ]; then dpkg --add-architecture "$arch"; fi
  fi
  if [ -n "$c" ]; then
    lacking=()
    [ "$arch" = "$own" ] || command -v "$CC" >/dev/null || lacking+=("gcc-${triple/_/-}" "g++-${triple/_/-}" "libc6-dev-$arch-cross")
    [ -z "$rust" ] || command -v cargo >/dev/null || lacking+=(cargo-web rustc-web)
    if [ ${#lacking[@]} -gt 0 ]; then
      retry apt-get update -qq
      DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends "${lacking[@]}" >/dev/null
    fi
  fi
  # Rust's standard library for the other architecture: by rustup, or from Debian's package without installing it.
  if [ -n "$rust" ] && [ "$arch" != "$own" ]; then
    if command -v rustup >/dev/null; then
      retry rustup target add "$CARGO_BUILD_TARGET"
    else
      (cd "$(mktemp -d)" && retry apt-get -o APT::Sandbox::User=root download -qq "libstd-rust-web-dev:$arch" && dpkg-deb -x libstd-rust-web-dev_*.deb /)
    fi
  fi
fi
exec "$@"

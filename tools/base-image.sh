#!/usr/bin/env bash
# base-image.sh: makes the base image of the Dockerfile's stages, for machines without access to a registry, and prints
# its name. Needs root, Debian or Ubuntu, and podman or buildah.
#
#   image=$(tools/base-image.sh)
#
# It is Debian with a C compiler, by mmdebstrap from this machine's mirror. It does not contain Go (tools/image.sh
# mounts this machine's) or Rust (tools/in-image.sh installs Debian's if needed). Does nothing if the image exists.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh
. tools/engine.sh

suite=bookworm
packages=ca-certificates,gcc,libc6-dev,make
image=localhost/embedsidecar-base:$suite-$(echo "$packages 2" | cksum | cut -d' ' -f1)

say() { printf 'base-image.sh: %s\n' "$*" >&2; }
find_engine podman buildah || { say 'error: podman or buildah is required' && exit 1; }
if "$engine" inspect --type image "$image" >/dev/null 2>&1; then
  echo "$image"
  exit
fi
if ! command -v mmdebstrap >/dev/null; then
  [ -z "${EMBEDSIDECAR_NO_INSTALL:-}" ] || { say 'error: mmdebstrap is missing' && say 'hint: apt-get install mmdebstrap' && exit 1; }
  say 'installing mmdebstrap'
  { retry apt-get update -qq && DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends mmdebstrap; } >&2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "making $image, once (about a minute)"
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
SOURCE_DATE_EPOCH=$epoch retry mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$work/base.tar" >&2
cat >"$work/Dockerfile" <<END
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV CARGO_HOME=/usr/local/cargo
END
"$engine" build --quiet -t "$image" "$work" >&2
echo "$image"

#!/usr/bin/env bash
# base-image.sh: makes the image that the stages of the Dockerfile begin with, where no registry can be reached, and prints its name.
# As root, on Debian or Ubuntu, for podman or buildah.
#
#   image=$(tools/base-image.sh)
#
# It is Debian with a C compiler, by mmdebstrap from the mirror that this machine uses. Go is not in it: tools/image.sh mounts this
# machine's. Rust is not in it either: tools/in-image.sh installs Debian's where it is needed. Does nothing when it is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh
. tools/engine.sh

suite=bookworm
packages=ca-certificates,gcc,libc6-dev,make
image=localhost/embedsidecar-base:$suite-$(echo "$packages 2" | cksum | cut -d' ' -f1)

say() { printf 'base-image.sh: %s\n' "$*" >&2; }
find_engine podman buildah || { say 'error: there is neither podman nor buildah' && exit 1; }
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

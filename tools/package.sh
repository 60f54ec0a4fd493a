#!/usr/bin/env bash
# package.sh: makes dist/*.deb and dist/*.rpm with nfpm, from the outputs of make build, runtime and model: embedsidecar
# (program, plugins remote and static, systemd unit, manual page, shell completion) and embedsidecar-onnx (plugin,
# library and default model).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/retry.sh

nfpm_version=v2.45.2
PAPERS=$(mktemp -d) # what the program writes of itself
export PAPERS
new=
trap 'rm -rf "$PAPERS" "$new"' EXIT
nfpm=${XDG_CACHE_HOME:-${HOME:?is not set: set it or XDG_CACHE_HOME}/.cache}/embedsidecar/nfpm/nfpm-$nfpm_version
if [ ! -x "$nfpm" ]; then
  echo "package.sh: building nfpm $nfpm_version, once (about a minute)" >&2
  mkdir -p "${nfpm%/*}"
  new=$(mktemp -d "${nfpm%/*}/.new.XXXXXX")
  GOBIN=$new CGO_ENABLED=0 retry go install -trimpath "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version"
  mv "$new/nfpm" "$nfpm"
fi

# A version starts with a number: a commit without a tag has 0.0.0 with its day and hash.
version=$(git describe --tags --match 'v[0-9]*' 2>/dev/null || git log -1 --format='0.0.0~%cd.%h' --date=format:%Y%m%d 2>/dev/null || echo 0.0.0)
export VERSION=${version#v} ARCH
ARCH=${ARCH:-$(go env GOARCH)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)} # nfpm sets it as every file's time
LIBRARY=$(tools/fetch-onnxruntime.sh)
LIBRARY_NAME=${LIBRARY##*/}
MODEL=$(tools/fetch-model.sh)
export SOURCE_DATE_EPOCH LIBRARY LIBRARY_NAME MODEL LIBRARY_FOLDER=${LIBRARY%/*}
program=bin/embedsidecar
if [ "$ARCH" != "$(go env GOHOSTARCH)" ]; then # it does not run here
  program=$PAPERS/program
  GOARCH=$(go env GOHOSTARCH) CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$VERSION" -o "$program" ./cmd/embedsidecar
fi
"$program" man | gzip -9n >"$PAPERS/embedsidecar.1.gz"
for shell in bash zsh fish; do "$program" completion "$shell" >"$PAPERS/$shell"; done
# A template unit for several databases: the same unit with instance names.
sed -e 's/^Description=.*/& (%i)/' -e 's|/etc/embedsidecar/embedsidecar.yaml|/etc/embedsidecar/%i.yaml|g' \
  -e 's|^RuntimeDirectory=embedsidecar$|&/%i|' -e 's|/run/embedsidecar$|&/%i|' -e '/OPS_LISTEN/d' \
  deploy/packages/embedsidecar.service >"$PAPERS/embedsidecar@.service"
mkdir -p dist
rm -f dist/*.deb dist/*.rpm # of other commits
for package in core onnx; do
  for form in deb rpm; do
    "$nfpm" package --config "deploy/packages/nfpm-$package.yaml" --packager "$form" --target dist/ >&2
  done
done
tools/sums.sh dist
ls dist/*.deb dist/*.rpm dist/SHA256SUMS*

#!/bin/sh
# Generates the Go side of embedder.proto. Needs Python 3 with venv, and Go; everything else comes in the pinned versions
# below into a throw-away folder. The generated files are committed, so nobody needs this to build.
# Run as: go generate ./plugins/proto
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check grpcio-tools==1.85.1
GOBIN="$work/bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$work/bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

PATH="$work/bin:$PATH" "$work/venv/bin/python" -m grpc_tools.protoc --proto_path=. \
  --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative \
  embedder.proto

# The Python package makes its messages from the descriptor.
"$work/venv/bin/python" -m grpc_tools.protoc --proto_path=. --descriptor_set_out=../python/embedsidecar_embedder/contract.binpb embedder.proto

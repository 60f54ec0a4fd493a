# Two images, neither with a shell:
#
#   core   the sidecar and the plugins remote and static, for models that run elsewhere and for plugins of your own; no cgo, no model
#   onnx   core, the plugin onnx, ONNX Runtime and the default model: nothing is fetched when it runs. What comes of no --target
#
#   make image                                   builds both, with docker, podman or buildah
#   docker build --target core -t embedsidecar:core .
#   docker build --target onnx -t embedsidecar:onnx .
#
# Images are pinned by release; pin them by digest with the build arguments, e.g. --build-arg BASE_IMAGE=debian@sha256:...
# Every stage runs on the machine that builds, whatever TARGETARCH is; nothing of another architecture is run.
ARG GO_IMAGE=golang:1.26.11-bookworm
ARG RUST_IMAGE=rust:1.95.0-bookworm
ARG BASE_IMAGE=debian:12.12-slim

# The program and the plugins remote and static: Go alone.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ENV GOMODCACHE=/cache/modules GOCACHE=/cache/build XDG_CACHE_HOME=/cache
WORKDIR /src
COPY tools/in-image.sh tools/retry.sh tools/
COPY go.mod go.sum ./
RUN --mount=type=secret,id=ca --mount=type=secret,id=environment tools/in-image.sh go mod download
COPY . .
ARG TARGETARCH
ARG VERSION=unknown REVISION=
RUN --mount=type=cache,target=/cache/build \
  tools/in-image.sh --for "$TARGETARCH" make build-core VERSION="$VERSION" REVISION="$REVISION"

# What the images hold of Debian, for the architecture that they are for.
FROM --platform=$BUILDPLATFORM ${BASE_IMAGE} AS system
COPY tools/in-image.sh tools/retry.sh tools/rootfs.sh /src/tools/
ARG TARGETARCH
RUN --mount=type=secret,id=ca --mount=type=secret,id=environment /src/tools/in-image.sh /src/tools/rootfs.sh "$TARGETARCH"

# What the programs are made of. What is of Debian stands in /var/lib/dpkg/status.d, where scanners look for it.
FROM build AS bill
ARG VERSION=unknown
RUN --mount=type=cache,target=/cache/build --mount=type=secret,id=ca --mount=type=secret,id=environment \
  VERSION="$VERSION" tools/in-image.sh tools/sbom.sh /bill bin/embedsidecar bin/plugins/embedsidecar-remote bin/plugins/embedsidecar-static

FROM scratch AS core
# First, so that no layer is taken over from the build of another commit, with that one's times.
ARG CREATED=
LABEL org.opencontainers.image.created="$CREATED"
COPY --from=system /rootfs/core/ /
COPY --from=bill /bill/ /usr/share/doc/embedsidecar/sbom/
# Whatever umask the clone was made with.
COPY --chmod=644 LICENSE CHANGELOG.md /usr/share/doc/embedsidecar/
COPY --from=build /src/bin/plugins/embedsidecar-remote /src/bin/plugins/embedsidecar-static /usr/lib/embedsidecar/plugins/
COPY --from=build /src/bin/embedsidecar /usr/bin/
# A number, so that orchestrators that insist on a user other than root can tell.
USER 10001:10001
# Probes and metrics: /livez, /readyz, /metrics. It changes nothing and shows no data, so all addresses of the container may see it.
# The log of run and serve goes where a container's log is looked for. Without a terminal its lines are JSON.
ENV PATH=/usr/bin EMBEDSIDECAR_LOG_OUTPUT=stdout EMBEDSIDECAR_OPS_LISTEN=:7471
EXPOSE 7471
STOPSIGNAL SIGTERM
# Alive, not ready: while the database is away the sidecar waits for it, and restarting it would bring nothing back.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/bin/embedsidecar", "healthcheck"]
ENTRYPOINT ["/usr/bin/embedsidecar"]
CMD ["run"]
ARG VERSION=unknown REVISION=
LABEL org.opencontainers.image.title="embedsidecar" \
  org.opencontainers.image.description="Keeps pgvector embeddings in sync with PostgreSQL tables" \
  org.opencontainers.image.source="https://github.com/embedsidecar/embedsidecar" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="$VERSION" \
  org.opencontainers.image.revision="$REVISION"

# The tokenizers crate, which the plugin onnx is linked with. It takes two minutes, and again only when the shim, the script or Rust changes.
FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS tokenizers
ENV XDG_CACHE_HOME=/cache
WORKDIR /src
COPY tools/in-image.sh tools/retry.sh tools/build-tokenizers.sh tools/
COPY plugins/onnx/tokenizers/shim/ plugins/onnx/tokenizers/shim/
ARG TARGETARCH
RUN --mount=type=secret,id=ca --mount=type=secret,id=environment --mount=type=secret,id=cargo,target=/usr/local/cargo/config.toml \
  EMBEDSIDECAR_TOKENIZERS=must tools/in-image.sh --for "$TARGETARCH" tools/build-tokenizers.sh

FROM build AS build-onnx
ARG TARGETARCH
ARG VERSION=unknown REVISION=
COPY --from=tokenizers /src/plugins/onnx/tokenizers/ plugins/onnx/tokenizers/
RUN --mount=type=cache,target=/cache/build --mount=type=secret,id=ca --mount=type=secret,id=environment \
  EMBEDSIDECAR_TOKENIZERS=built tools/in-image.sh --for "$TARGETARCH" make build-onnx VERSION="$VERSION" REVISION="$REVISION"

# The model and the library come by the same scripts, with the same pinned sha256 sums, as in a clone.
FROM --platform=$BUILDPLATFORM ${BASE_IMAGE} AS model
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates python3 python3-pip python3-venv \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY tools/in-image.sh tools/retry.sh tools/fetch-lib.sh tools/fetch-model.sh tools/fetch-onnxruntime.sh tools/make_onnx.py tools/
ENV XDG_CACHE_HOME=/cache
RUN --mount=type=secret,id=ca --mount=type=secret,id=environment tools/in-image.sh tools/fetch-model.sh
ARG TARGETARCH
RUN --mount=type=secret,id=ca --mount=type=secret,id=environment tools/in-image.sh --for "$TARGETARCH" tools/fetch-onnxruntime.sh

# The same of the plugin onnx, and of its part in Rust.
FROM build-onnx AS bill-onnx
ARG VERSION=unknown
RUN --mount=type=cache,target=/cache/build --mount=type=secret,id=ca --mount=type=secret,id=environment \
  VERSION="$VERSION" tools/in-image.sh tools/sbom.sh /bill bin/plugins/embedsidecar-onnx \
  && cp plugins/onnx/tokenizers/shim/Cargo.lock /bill/

FROM core AS onnx
COPY --from=system /rootfs/onnx/ /
COPY --from=model /cache/embedsidecar/onnxruntime/ /usr/lib/embedsidecar/lib/
COPY --from=model /cache/embedsidecar/models/ /usr/lib/embedsidecar/models/
COPY --from=build-onnx /src/bin/plugins/embedsidecar-onnx /usr/lib/embedsidecar/plugins/
COPY --from=bill-onnx /bill/ /usr/share/doc/embedsidecar/sbom/

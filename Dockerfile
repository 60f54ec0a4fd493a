# The sidecar with the ONNX plugin, ONNX Runtime and the default model: nothing is fetched when it runs.
#
#   docker build --build-arg VERSION="$(git describe --tags --always --dirty)" --build-arg REVISION="$(git rev-parse HEAD)" \
#     -t embedsidecar .
#   docker run --rm embedsidecar version
#
# glibc and not musl: ONNX Runtime is built for glibc. Images are pinned by release; pin them by digest with the build
# arguments, e.g. --build-arg BASE_IMAGE=debian@sha256:...
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG RUST_IMAGE=rust:1.95.0-bookworm
ARG BASE_IMAGE=debian:12.12-slim

FROM ${RUST_IMAGE} AS rust

FROM ${GO_IMAGE} AS build
# The tokenizers crate, which the plugin onnx is linked with, is compiled where it is linked, by the same script as in a clone. That takes
# two minutes, and is done again only when the shim, the script or Rust changes.
COPY --from=rust /usr/local/cargo/ /usr/local/cargo/
COPY --from=rust /usr/local/rustup/ /usr/local/rustup/
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH XDG_CACHE_HOME=/cache
WORKDIR /src
COPY tools/build-tokenizers.sh tools/
COPY plugins/onnx/tokenizers/shim/ plugins/onnx/tokenizers/shim/
RUN EMBEDSIDECAR_TOKENIZERS=must tools/build-tokenizers.sh
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown REVISION=
RUN EMBEDSIDECAR_TOKENIZERS=must make build VERSION="$VERSION" REVISION="$REVISION"

# The model and the library come by the same scripts, with the same pinned sha256 sums, as in a clone.
FROM ${BASE_IMAGE} AS model
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates python3 python3-pip python3-venv \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY tools/retry.sh tools/fetch-lib.sh tools/fetch-model.sh tools/fetch-onnxruntime.sh tools/make_onnx.py tools/
ENV XDG_CACHE_HOME=/cache
RUN tools/fetch-onnxruntime.sh && tools/fetch-model.sh

FROM ${BASE_IMAGE}
# ca-certificates: servers with sslmode=verify-full. libstdc++6: ONNX Runtime. Debian's versions are those of the base image's
# release; pinning single ones would only make the build fail after each security update.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends ca-certificates libstdc++6 \
  && rm -rf /var/lib/apt/lists/* \
  && groupadd --gid 10001 embedsidecar \
  && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin embedsidecar
COPY --from=model /cache/embedsidecar/onnxruntime/ /usr/lib/embedsidecar/lib/
COPY --from=model /cache/embedsidecar/models/ /usr/lib/embedsidecar/models/
COPY --from=build /src/bin/plugins/embedsidecar-onnx /src/bin/plugins/embedsidecar-remote /usr/lib/embedsidecar/plugins/
COPY --from=build /src/bin/embedsidecar /usr/bin/
COPY LICENSE CHANGELOG.md /usr/share/doc/embedsidecar/

# A number, so that orchestrators that insist on a user other than root can tell.
USER 10001:10001
# Probes and metrics: /livez, /readyz, /metrics. It changes nothing and shows no data, so all addresses of the container may see it.
ENV EMBEDSIDECAR_OPS_LISTEN=:7471
EXPOSE 7471
STOPSIGNAL SIGTERM
# Alive, not ready: while the database is away the sidecar waits for it, and restarting it would bring nothing back.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7471 && printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3 && read -r -t 2 _ code _ <&3 && [ \"$code\" = 200 ]"]
ENTRYPOINT ["/usr/bin/embedsidecar"]
CMD ["run"]

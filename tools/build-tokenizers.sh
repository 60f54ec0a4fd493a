#!/usr/bin/env bash
# build-tokenizers.sh: compiles the tokenizers crate for the ONNX plugin if cargo is installed, and prints the plugin's
# build tag: "tokenizers", or nothing if the crate could not be compiled. No root needed.
#
#   go build -tags "$(tools/build-tokenizers.sh)" ./plugins/onnx
#
# Without the crate, the plugin reads WordPiece tokenizers only. The first build takes two minutes of one core; later
# ones use the cache. EMBEDSIDECAR_TOKENIZERS=no omits the crate, =must fails if it cannot be compiled, =built uses an
# existing build and needs no compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../plugins/onnx/tokenizers"

mode=${EMBEDSIDECAR_TOKENIZERS:-auto}
cache=${XDG_CACHE_HOME:-${HOME:?is not set: set it or XDG_CACHE_HOME}/.cache}/embedsidecar/tokenizers
library=libembedsidecar_tokenizers.a

say() { printf 'build-tokenizers.sh: %s\n' "$*" >&2; }
# without WHY: ends without the crate.
without() {
  if [ "$mode" = must ]; then
    say "error: $1"
    say "hint: install Rust 1.80 or newer, and a C compiler"
    exit 1
  fi
  say "$1: the plugin onnx will read WordPiece tokenizers only"
  exit 0
}

case $mode in
auto | must) ;;
no) exit 0 ;;
built)
  [ -s "lib/$library" ] && [ -s library.h ] || { say "error: EMBEDSIDECAR_TOKENIZERS=built, and there is no $PWD/lib/$library"; exit 1; }
  echo tokenizers
  exit 0
  ;;
*)
  say "error: EMBEDSIDECAR_TOKENIZERS=$mode: want auto, must, no or built"
  exit 2
  ;;
esac
command -v cargo >/dev/null || without 'there is no cargo'

# A hash of the sources and the compiler; the name of the result in the cache.
version=$(rustc --version --verbose 2>&1) || without 'cargo has no Rust compiler'
target=${CARGO_BUILD_TARGET:-} # another machine's, if cargo is configured so
key=$( (cat shim/Cargo.toml shim/Cargo.lock shim/src/*.rs && echo "$version$target") | cksum | tr ' ' -)
built=$cache/$key/$library
if [ ! -s "$built" ]; then
  say 'compiling the tokenizers crate, once (about two minutes)'
  mkdir -p "$cache/$key"
  exec 9>"$cache/lock"
  if command -v flock >/dev/null; then flock 9; fi
fi
if [ ! -s "$built" ]; then
  log=$cache/$key/log
  if ! CARGO_NET_RETRY=10 CARGO_TARGET_DIR=$cache/target cargo build --locked --release --manifest-path shim/Cargo.toml >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    without "the tokenizers crate cannot be compiled, see above (all of it: $log)"
  fi
  cp "$cache/target/${target:+$target/}release/$library" "$built.new"
  mv "$built.new" "$built"
fi
mkdir -p lib
if ! cmp -s "$built" "lib/$library"; then
  cp "$built" "lib/$library.$$"
  mv "lib/$library.$$" "lib/$library"
fi
# Go checks headers, not libraries, to decide whether to rebuild a package.
echo "// Of the library in lib/: $key" >"library.h.$$"
if cmp -s "library.h.$$" library.h; then rm "library.h.$$"; else mv "library.h.$$" library.h; fi
echo tokenizers

#!/usr/bin/env bash
# rootfs.sh ARCH: unpacks the images' files of Debian into /rootfs, from Debian's packages for ARCH. It runs none of
# them, so it works for any architecture. Run by the Dockerfile.
#
#   /rootfs/core   certificate authorities, one user, /tmp
#   /rootfs/onnx   the C and C++ libraries that ONNX Runtime needs
#
# There is no shell and no package manager. Scanners find the packages in var/lib/dpkg/status.d.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/retry.sh"

arch=$1
dpkg --add-architecture "$arch"
retry apt-get update -qq
mkdir -p /debs /rootfs
cd /debs

# unpack TREE PACKAGE...: unpacks packages into /debs/PACKAGE, and their descriptions and copyrights into the tree.
unpack() {
  local tree=/rootfs/$1 package deb
  shift
  for package; do
    retry apt-get -o APT::Sandbox::User=root download -qq "$package"
    deb=$(echo "${package%:*}"_*.deb)
    dpkg-deb -x "$deb" "${package%:*}"
    install -D -m 644 /dev/null "$tree/var/lib/dpkg/status.d/${package%:*}"
    dpkg-deb -f "$deb" >"$tree/var/lib/dpkg/status.d/${package%:*}"
    install -D -m 644 "${package%:*}/usr/share/doc/${package%:*}/copyright" "$tree/usr/share/doc/${package%:*}/copyright"
  done
}

unpack core ca-certificates base-files:"$arch"
install -D -m 644 base-files/usr/lib/os-release /rootfs/core/usr/lib/os-release
mkdir -p /rootfs/core/etc/ssl/certs
ln -s ../usr/lib/os-release /rootfs/core/etc/os-release
find ca-certificates/usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat >/rootfs/core/etc/ssl/certs/ca-certificates.crt
# Orchestrators check the number; the name is for people.
printf '%s\n' root:x:0:0:root:/:/nonexistent embedsidecar:x:10001:10001::/nonexistent:/nonexistent >/rootfs/core/etc/passwd
printf '%s\n' root:x:0: embedsidecar:x:10001: >/rootfs/core/etc/group
install -d -m 1777 /rootfs/core/tmp

# The copyright of libstdc++6 is a link to that of gcc's base package.
unpack onnx gcc-12-base:"$arch" libc6:"$arch"
for package in libgcc-s1 libstdc++6; do
  retry apt-get -o APT::Sandbox::User=root download -qq "$package:$arch"
  dpkg-deb -x "${package}"_*.deb "$package"
  dpkg-deb -f "${package}"_*.deb >"/rootfs/onnx/var/lib/dpkg/status.d/$package"
done
# Only libraries: no gconv modules, no helpers.
for package in libc6 libgcc-s1 libstdc++6; do
  (cd "$package" && find . -regextype posix-extended -regex '\./(usr/)?lib(64)?(/[a-z0-9_]+-linux-gnu)?/[^/]+\.so(\.[0-9.]+)?' |
    LC_ALL=C sort | tar cf - --no-recursion --files-from=-) | tar xf - -C /rootfs/onnx
done

#!/bin/sh
# Before it is removed, and not before an upgrade: deb says "remove", rpm says 0.
set -eu
case ${1:-} in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl disable --now embedsidecar.service; systemctl stop 'embedsidecar@*.service'; fi
  ;;
esac

#!/bin/sh
# Before a removal, not before an upgrade: the argument is "remove" (deb) or 0 (rpm).
set -eu
case ${1:-} in
remove | 0)
  if [ -d /run/systemd/system ]; then systemctl disable --now embedsidecar.service; systemctl stop 'embedsidecar@*.service'; fi
  ;;
esac

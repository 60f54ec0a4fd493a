#!/bin/sh
# After a removal. Databases stay as they are: embedsidecar uninstall is for that.
set -eu
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

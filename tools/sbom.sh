#!/usr/bin/env bash
# sbom.sh: writes the bills of materials of Go programs into a folder, NAME.cdx.json each (CycloneDX), by cyclonedx-gomod.
#
#   tools/sbom.sh FOLDER PROGRAM...
#
# The output is reproducible: it has neither a time nor a serial number.
set -euo pipefail
tool=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

folder=$1
shift
mkdir -p "$folder"
for program in "$@"; do
  go run "$tool" bin -json -std -noserial -notimestamp -version "${VERSION:-unknown}" -output "$folder/$(basename "$program").cdx.json" "$program"
done

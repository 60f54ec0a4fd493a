#!/usr/bin/env bash
# fetch-onnxruntime.sh: puts the shared library of ONNX Runtime into the cache and prints its path. No root needed.
#
#   library=$(tools/fetch-onnxruntime.sh)
#   tools/fetch-onnxruntime.sh 1.24.1     the one that computes wrongly on CPUs with AMX, for the test that refuses it
#
# A second run does nothing. The library comes from the project's Python package, but runs without Python.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

version=${1:-1.31.1} folder=$cache/onnxruntime
case $version-${ONNXRUNTIME_PLATFORM:-$(uname -s)-$(uname -m)} in
1.24.1-Linux-x86_64 | 1.24.1-Linux-amd64)
  # In its own folder, which is not searched for libraries.
  folder=$cache/onnxruntime-1.24.1
  platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64) file=libonnxruntime.so.$version bytes=22052768
  wheel_sum=34b6119526eda12613f0d0498e2ae59563c247c370c9cef74c2fc93133dde157
  sum=94ac52f650e195b784587e1cb7d25b4bf074048b50fa9a7127795b2ed34db22e
  ;;
1.24.1-*) exit 0 ;; # other machines have no AMX
1.31.1-Linux-x86_64 | 1.31.1-Linux-amd64)
  platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64) file=libonnxruntime.so.$version bytes=29352200
  wheel_sum=1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536
  sum=fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3
  ;;
1.31.1-Linux-aarch64 | 1.31.1-Linux-arm64)
  platforms=(manylinux_2_28_aarch64 manylinux_2_27_aarch64) file=libonnxruntime.so.$version bytes=25265040
  wheel_sum=0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc
  sum=8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467
  ;;
1.31.1-Darwin-arm64)
  platforms=(macosx_14_0_arm64) file=libonnxruntime.$version.dylib bytes=33037336
  wheel_sum=96dd2564b10ea7153ad9c207e7cd8e5917cb3ba521e0e0a62ac03486fdc8d56c
  sum=d586cbe89effc085a09d3341b3cfbd5c322517f9d397aeb20814af21433f2b36
  ;;
*)
  die "no ONNX Runtime $version is known for $(uname -s) on $(uname -m)" \
    "build or install ONNX Runtime 1.27 or newer yourself (1.24 does, but for weights of 8 bits on CPUs with AMX) and set EMBEDSIDECAR_PLUGIN_ONNXRUNTIME to its shared library"
  ;;
esac

library=$folder/$file
if [ -f "$library" ] && [ "$(wc -c <"$library")" -eq "$bytes" ] && [ "$(sha256 "$library")" = "$sum" ]; then
  echo "$library"
  exit
fi

make_tmp
need_space 100
options=(--python-version 3.12 --implementation cp)
for platform in "${platforms[@]}"; do options+=(--platform "$platform"); done
download_wheel "onnxruntime==$version" "$wheel_sum" "${options[@]}"
unzip_wheel "$tmp/content"
[ "$(sha256 "$tmp/content/onnxruntime/capi/$file")" = "$sum" ] || die "$file has another sha256 than pinned"

# Each file is renamed into place, the library last: if it exists, all files do.
mkdir -p "$folder"
mv -f "$tmp/content/onnxruntime/LICENSE" "$folder/LICENSE"
mv -f "$tmp/content/onnxruntime/ThirdPartyNotices.txt" "$folder/ThirdPartyNotices.txt"
chmod 755 "$tmp/content/onnxruntime/capi/$file"
mv -f "$tmp/content/onnxruntime/capi/$file" "$library"
say "installed $library"
echo "$library"

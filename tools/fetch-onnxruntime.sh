#!/usr/bin/env bash
# fetch-onnxruntime.sh: puts the shared library of ONNX Runtime into the cache and prints its path. No root needed.
#
#   library=$(tools/fetch-onnxruntime.sh)
#
# Does nothing when it is there already. The library is taken out of the project's own Python package; nothing of Python is
# needed to run it.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"

version=1.24.1
case $(uname -s)-$(uname -m) in
Linux-x86_64 | Linux-amd64)
  platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64) file=libonnxruntime.so.$version bytes=22052768
  wheel_sum=34b6119526eda12613f0d0498e2ae59563c247c370c9cef74c2fc93133dde157
  sum=94ac52f650e195b784587e1cb7d25b4bf074048b50fa9a7127795b2ed34db22e
  ;;
Linux-aarch64 | Linux-arm64)
  platforms=(manylinux_2_28_aarch64 manylinux_2_27_aarch64) file=libonnxruntime.so.$version bytes=18559840
  wheel_sum=780add442ce2d4175fafb6f3102cdc94243acffa3ab16eacc03dd627cc7b1b54
  sum=31d6df98d3a2942ce10472109f988037f330dad6cb1c19e214fd2b1327315ee0
  ;;
Darwin-arm64)
  platforms=(macosx_14_0_arm64) file=libonnxruntime.$version.dylib bytes=27651672
  wheel_sum=7307aab9e2e879c0171f37e0eb2808a5b4aec7ba899bb17c5f0cedfc301a8ac2
  sum=644ea9751a5e7e56dff293d2a7c3d78f18f8b404e85bade791c0d40a3b950553
  ;;
*)
  die "no ONNX Runtime $version is known for $(uname -s) on $(uname -m)" \
    "build or install ONNX Runtime 1.24 or newer yourself and set EMBEDSIDECAR_PLUGIN_ONNXRUNTIME to its shared library"
  ;;
esac

folder=$cache/onnxruntime
library=$folder/$file
if [ -f "$library" ] && [ "$(wc -c <"$library")" -eq "$bytes" ]; then
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

# Each file is moved in one step, the library last: its being there says that all is.
mkdir -p "$folder"
mv -f "$tmp/content/onnxruntime/LICENSE" "$folder/LICENSE"
mv -f "$tmp/content/onnxruntime/ThirdPartyNotices.txt" "$folder/ThirdPartyNotices.txt"
chmod 755 "$tmp/content/onnxruntime/capi/$file"
mv -f "$tmp/content/onnxruntime/capi/$file" "$library"
say "installed $library"
echo "$library"

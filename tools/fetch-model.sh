#!/usr/bin/env bash
# fetch-model.sh: puts the default model, all-MiniLM-L6-v2, into the cache and prints its folder. No root needed.
#
#   model=$(tools/fetch-model.sh)
#
# A second run does nothing. The folder holds model.onnx (made here from the published weights), the tokenizer, the
# settings, and SHA256SUMS, which the plugin checks at every start.
. "$(dirname "${BASH_SOURCE[0]}")/fetch-lib.sh"
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

name=all-MiniLM-L6-v2
# The sum of SHA256SUMS itself, and so of every file in the folder. It changes only if vectors may change.
sums_sum=4305b9ad00cbf620796cdfbeb1c4f1644b6d9f580427dc8d4a63bbfe24f4a53f
files=(1_Pooling/config.json README.md config.json config_sentence_transformers.json modules.json sentence_bert_config.json
  special_tokens_map.json tokenizer.json tokenizer_config.json vocab.txt)

folder=$cache/models/$name
complete() {
  [ -f "$folder/SHA256SUMS" ] && [ "$(sha256 "$folder/SHA256SUMS")" = "$sums_sum" ] || return 1
  local file
  for file in model.onnx "${files[@]}"; do [ -s "$folder/$file" ] || return 1; done
}
if complete; then
  echo "$folder"
  exit
fi

make_tmp
need_space 280
download_weights

made=$tmp/$name
mkdir -p "$made/1_Pooling"
for file in "${files[@]}"; do cp "$weights/$file" "$made/$file"; done
say "making model.onnx"
python3 "$tools/make_onnx.py" "$weights" "$made/model.onnx" --name "$name" ||
  die "cannot make model.onnx in $cache, see above" "$make_space, if it is full"
(cd "$made" && for file in $(printf '%s\n' model.onnx "${files[@]}" | LC_ALL=C sort); do echo "$(sha256 "$file")  $file"; done) >"$tmp/SHA256SUMS"
mv "$tmp/SHA256SUMS" "$made/SHA256SUMS"
[ "$(sha256 "$made/SHA256SUMS")" = "$sums_sum" ] ||
  die "the model made here differs from the pinned one" "report this with the output of python3 --version and uname -a"

if [ -e "$folder" ]; then
  say "replacing $folder: it is not the pinned model"
  mv "$folder" "$tmp/replaced"
fi
install_folder "$made" "$folder"
complete || die "$folder is not complete after installing it" "run $script again"
say "installed $folder"
echo "$folder"

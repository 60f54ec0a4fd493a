#compdef embedsidecar
_embedsidecar() {
  local -a found
  found=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null | sed 's/:/\\:/g; s/\t/:/')}")
  [[ -n "${found[1]}" ]] && _describe embedsidecar found || _files
}
[[ "${funcstack[1]}" == _embedsidecar ]] && _embedsidecar || compdef _embedsidecar embedsidecar

function __embedsidecar
  set -l words (commandline -opc)
  embedsidecar __complete $words[2..] (commandline -ct) 2>/dev/null
end
complete -c embedsidecar -a '(__embedsidecar)'

# retry.sh: retries downloads. Sourced, not run. Package indexes and mirrors sometimes fail or stall, and their clients
# give up at the first error.

# retry COMMAND...: runs it up to four times, with pauses; returns the last status.
retry() {
  local pause status
  for pause in 3 10 30 ''; do
    status=0
    "$@" || status=$?
    if [ "$status" = 0 ] || [ -z "$pause" ]; then return "$status"; fi
    echo "${0##*/}: '$1' failed; retrying in $pause s" >&2
    sleep "$pause"
  done
}

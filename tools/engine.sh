# engine.sh: finds the container engine. Sourced, not run. Sets $engine to docker, podman or buildah; CONTAINER_ENGINE names another.
#
# Where this is a machine within a machine, podman's defaults ask for more than it may have: a runtime that knows this kernel's cgroups, and
# limits no higher than our own. Then CONTAINERS_CONF gets a file that asks for less, for this script and what it starts.

# usable ENGINE: reports whether it is there and answers. A docker without its daemon is none, nor is one that is podman by another name.
usable() {
  case $1 in
  docker) "$1" info >/dev/null 2>&1 && ! "$1" --version 2>&1 | grep -qi podman ;;
  podman) "$1" info >/dev/null 2>&1 ;;
  *) "$1" --version >/dev/null 2>&1 ;;
  esac
}

# find_engine CHOICE...: the first that can be used.
find_engine() {
  local choice
  for choice in ${CONTAINER_ENGINE:-"$@"}; do
    if usable "$choice"; then
      engine=$choice
      modest
      return
    fi
  done
  return 1
}

# modest writes the file for an engine of podman's family, unless there is one.
modest() {
  if [ "$engine" = docker ] || [ -n "${CONTAINERS_CONF:-}" ]; then return; fi
  local folder
  folder=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/embedsidecar-containers-$(id -u)
  (umask 077 && mkdir -p "$folder")
  [ -O "$folder" ] || return 0 # somebody else's
  {
    if [ "$(id -u)" = 0 ] && ! (ulimit -H -n 1048576) 2>/dev/null; then
      printf '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=1024:1024"]\n'
    fi
    # crun wants one hierarchy of cgroups, runc takes several.
    if [ -d /sys/fs/cgroup/unified ] && command -v runc >/dev/null; then printf '[engine]\nruntime = "runc"\n'; fi
  } >"$folder/containers.conf.$$"
  mv "$folder/containers.conf.$$" "$folder/containers.conf"
  if [ -s "$folder/containers.conf" ]; then export CONTAINERS_CONF=$folder/containers.conf; fi
}

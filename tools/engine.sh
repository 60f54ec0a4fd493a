# engine.sh: finds the container engine. Sourced, not run. Sets $engine to docker, podman or buildah; CONTAINER_ENGINE
# names another.
#
# Inside a container or VM, podman's defaults may not work: it needs a runtime for this kernel's cgroups, and limits
# within our own. Then CONTAINERS_CONF is set to a file with modest settings, for this script and its children.

# usable ENGINE: reports whether the engine is installed and works. A docker without a daemon, or a podman named docker,
# does not count.
usable() {
  case $1 in
  docker) "$1" info >/dev/null 2>&1 && ! "$1" --version 2>&1 | grep -qi podman ;;
  podman) "$1" info >/dev/null 2>&1 ;;
  *) "$1" --version >/dev/null 2>&1 ;;
  esac
}

# find_engine CHOICE...: sets $engine to the first usable one.
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

# modest writes this file for podman and buildah, unless CONTAINERS_CONF is set.
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

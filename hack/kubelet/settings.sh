# settings.sh: where things are, and the few words that every script of this folder uses. To be sourced.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)

# What may be set from outside.
STATE=${HIGHWATER_KUBELET_STATE:-/var/tmp/highwater-kubelet} # keys, disks, logs and pid files of the cluster
CACHE=${HIGHWATER_KUBELET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/highwater} # binaries, kept between clusters
read -ra NODES <<<"${HIGHWATER_KUBELET_NODES:-n1 n2 n3}" # names end in a number from 1 to 200: their address
VOLUMES=${HIGHWATER_KUBELET_VOLUMES:-16} # volumes of each node, made in advance

KUBERNETES_VERSION=v1.37.2
KUBE=$CACHE/kube/$KUBERNETES_VERSION-cluster
PKI=$STATE/pki
KUBECONFIG_ADMIN=$PKI/admin.kubeconfig

# Addresses: nodes on a bridge of their own, pods in a /24 of each node, Services.
LAN=172.31.250
POD_NET=10.244
SERVICE_NET=10.96
API=$LAN.1

# Everything of the cluster lives in cgroups and network namespaces that begin with this; so it is found, and ended,
# without a guess at names or process ids.
PREFIX=hwk

say() { printf '%s [%4d s] %s\n' "$(date +%T)" "$SECONDS" "$*" >&2; }
die() { say "FAILED: $*"; exit 1; }
not_run() { printf 'NOT RUN: %s\n' "$*" >&2; exit 3; }

number() { local digits=${1##*[!0-9]}; echo "${digits:?node name $1 does not end in a number}"; }
address() { echo "$LAN.$((10 + $(number "$1")))"; }
netns() { echo "$PREFIX-$1"; }
inside() { local ns; ns=$(netns "$1"); shift; nsenter --net="/run/netns/$ns" "$@"; } # not ip netns exec: it remounts /sys
kubectl() { inside cp "$KUBE/kubectl" --kubeconfig "$KUBECONFIG_ADMIN" "$@"; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds, a line every ten seconds.
wait_for() {
  local limit=$1 what=$2 begin=$SECONDS told=$SECONDS
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS - begin < limit)) || die "waited $limit s in vain: $what"
    ((SECONDS - told < 10)) || { say "waiting for: $what"; told=$SECONDS; }
    sleep 0.2
  done
}

# cgroup_roots: the hierarchies. One with cgroup v2, one for each controller with v1.
cgroup_roots() {
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup; return; fi
  local dir
  for dir in /sys/fs/cgroup/*/; do
    dir=${dir%/}
    [ -L "$dir" ] || [ "${dir##*/}" = unified ] || echo "$dir"
  done
}

# enter_cgroup NAME: this process, and what it starts from now on, belongs to NAME.
enter_cgroup() {
  local root dir
  for root in $(cgroup_roots); do
    dir=$root/$1
    mkdir -p "$dir"
    if [ "${root##*/}" = cpuset ]; then # a new cpuset is empty and takes no process
      local level=$root part
      for part in ${1//\// }; do
        level=$level/$part
        cat "$root/cpuset.cpus" >"$level/cpuset.cpus"
        cat "$root/cpuset.mems" >"$level/cpuset.mems"
      done
    fi
    echo $BASHPID >"$dir/cgroup.procs"
  done
}

# members NAME: the processes of a cgroup and of all below it, pods' too.
members() {
  local root
  for root in $(cgroup_roots); do
    [ ! -d "$root/$1" ] || find "$root/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -un
}

# end_all NAME: kill -9 until nothing is left; shims start children while they die, hence the rounds.
end_all() {
  local round pids
  for round in $(seq 1 50); do
    pids=$(members "$1")
    [ -n "$pids" ] || return 0
    # shellcheck disable=SC2086 # a list
    kill -9 $pids 2>/dev/null || true
    sleep 0.1
  done
  die "processes of $1 don't end: $(members "$1" | tr '\n' ' ')"
}

drop_cgroup() {
  local root round
  for root in /sys/fs/cgroup /sys/fs/cgroup/*; do # runc makes one in v1's "unified" too
    for round in 1 2 3 4 5; do
      [ -d "$root/$1" ] || break
      find "$root/$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.2
    done
  done
}

# start NAME CGROUP COMMAND...: in the background, log and pid file in $STATE.
start() {
  local name=$1 group=$2
  shift 2
  (
    enter_cgroup "$group"
    exec setsid "$@" >>"$STATE/$name.log" 2>&1 </dev/null
  ) &
  echo $! >"$STATE/$name.pid"
}

# stop NAME CGROUP: TERM, and up to five seconds; only what the cgroup says is still ours.
stop() {
  local pid round
  pid=$(cat "$STATE/$1.pid" 2>/dev/null) || return 0
  for round in $(seq 1 50); do
    members "$2" | grep -qx "$pid" || return 0
    [ "$round" != 1 ] || kill "$pid" 2>/dev/null || true
    sleep 0.1
  done
}

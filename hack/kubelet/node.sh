#!/usr/bin/env bash
# node.sh start|kill NODE: a node's containerd, kubelet and kube-proxy.
#
# kill is a machine whose plug was pulled: all its processes, pods' too, get SIGKILL at once. Its disks stay. start
# after that is the machine that boots again.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
action=${1:-} node=${2:-}
[ -n "$node" ] || die "usage: node.sh start|kill NODE"
group=$PREFIX-$node

case $action in
  start)
    [ -z "$(members "$group")" ] || die "node $node is running"
    rm -rf "$STATE/nodes/$node/run" # a tmpfs on a real machine: empty after a boot
    mkdir -p "$STATE/nodes/$node"/{run,var/lib,var/log,etc/cni}
    start "node-$node" "$group/system" nsenter --net="/run/netns/$(netns "$node")" \
      unshare --mount --uts --propagation private "$HERE/node-main.sh" "$node"
    ;;
  kill)
    end_all "$group"
    # A boot finds neither bridge nor cgroups. A kubelet that does find cgroups of pods takes three seconds over each.
    ip -n "$(netns "$node")" link del cni0 2>/dev/null || true
    drop_cgroup "$group"
    ;;
  *) die "usage: node.sh start|kill NODE" ;;
esac

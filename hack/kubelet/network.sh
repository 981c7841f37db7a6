#!/usr/bin/env bash
# network.sh up|down: one network namespace for the control plane, which holds the bridge, and one for each node.
# Nothing connects them with the machine's own network: what runs there reaches the cluster and nothing else.
set -euo pipefail
. "$(dirname "$0")/settings.sh"

up() {
  local node other plane
  plane=$(netns cp)
  ip netns add "$plane"
  ip -n "$plane" link set lo up
  ip -n "$plane" link add lan type bridge
  ip -n "$plane" addr add "$API/24" dev lan
  ip -n "$plane" link set lan up
  inside cp sysctl -qw net.ipv4.ip_forward=1
  for node in "${NODES[@]}"; do
    local ns
    ns=$(netns "$node")
    ip netns add "$ns"
    ip -n "$ns" link set lo up
    ip -n "$plane" link add "to-$node" type veth peer name eth0 netns "$ns"
    ip -n "$plane" link set "to-$node" master lan up
    ip -n "$ns" addr add "$(address "$node")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" route add default via "$API"
    inside "$node" sysctl -qw net.ipv4.ip_forward=1
    ip -n "$plane" route add "$POD_NET.$(number "$node").0/24" via "$(address "$node")"
    for other in "${NODES[@]}"; do
      [ "$other" = "$node" ] || ip -n "$ns" route add "$POD_NET.$(number "$other").0/24" via "$(address "$other")"
    done
  done
}

case ${1:-} in
  up) up ;;
  down) for name in "${NODES[@]}" cp; do ip netns del "$(netns "$name")" 2>/dev/null || true; done ;;
  *) die "usage: network.sh up|down" ;;
esac

#!/usr/bin/env bash
# down.sh: end everything that up.sh started and remove what it made. HIGHWATER_KUBELET_KEEP=1 keeps logs and disks.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ "$(id -u)" = 0 ] || not_run "down.sh needs root"
for node in "${NODES[@]}"; do
  end_all "$PREFIX-$node"
  drop_cgroup "$PREFIX-$node"
done
"$HERE/controlplane.sh" down
"$HERE/network.sh" down
[ ! -f "$STATE/sysctl" ] || xargs -r sysctl -qw <"$STATE/sysctl"
if [ -n "${HIGHWATER_KUBELET_KEEP:-}" ]; then
  rm -rf "$STATE.kept"
  [ ! -e "$STATE" ] || mv "$STATE" "$STATE.kept"
  say "down; logs and disks are in $STATE.kept"
else
  rm -rf "$STATE"
  say "down"
fi

#!/usr/bin/env bash
# load.sh: bring images that were made after the cluster was (images.sh) into every running node.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
for node in "${NODES[@]}"; do
  pid=$(cat "$STATE/nodes/$node/containerd.pid")
  members "$PREFIX-$node" | grep -qx "$pid" || die "node $node is not running"
  nsenter --target "$pid" --mount "$HERE/import.sh" "$node" >/dev/null
done

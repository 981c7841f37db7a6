#!/usr/bin/env bash
# signal.sh NODE CONTAINER-ID SIGNAL: send a signal to every process of one container.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
node=$1 container=$2 signal=$3
for root in $(cgroup_roots); do
  dir=$(find "$root/$PREFIX-$node" -type d -name "*$container*" 2>/dev/null | head -n 1)
  [ -z "$dir" ] || break
done
[ -n "$dir" ] || die "no container $container on $node"
# shellcheck disable=SC2046 # a list
kill "-$signal" $(cat "$dir/cgroup.procs")

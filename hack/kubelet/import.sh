#!/usr/bin/env bash
# import.sh NODE: give a node's containerd the images that it does not have yet. To be run where its socket is.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
done_mark=$STATE/nodes/$1/imported
mkdir -p "$done_mark"
for image in "$STATE"/images/*.tar; do
  mark=$done_mark/${image##*/}
  [ -e "$image" ] || continue
  [ "$mark" -nt "$image" ] || ctr -n k8s.io images import "$image"
  touch "$mark"
done

#!/usr/bin/env bash
# with.sh PACKAGE [ARGS...]: run a Go program of this repository on a cluster, with the project's images in it.
#
# Without KUBECONFIG it brings up the cluster of this folder and takes it down again at the end, whatever the end is.
# With KUBECONFIG it runs on that cluster, kubectl from PATH; the images have to be where that cluster can pull them:
# HIGHWATER_IMAGE (from the Dockerfile) and HIGHWATER_CLIENT_IMAGE (test/e2e/kubelet/client).
set -euo pipefail
. "$(dirname "$0")/settings.sh"
package=$1
shift
export GOFLAGS=-trimpath CGO_ENABLED=0
cd "$ROOT"

if [ -n "${KUBECONFIG:-}" ]; then
  [ -n "${HIGHWATER_IMAGE:-}" ] && [ -n "${HIGHWATER_CLIENT_IMAGE:-}" ] ||
    not_run "KUBECONFIG is set: HIGHWATER_IMAGE and HIGHWATER_CLIENT_IMAGE must name images that this cluster can pull"
  command -v kubectl >/dev/null || not_run "kubectl is not in PATH"
  exec go run "$package" --image "$HIGHWATER_IMAGE" --client-image "$HIGHWATER_CLIENT_IMAGE" "$@"
fi

"$HERE/require.sh"
work=$(mktemp -d)
ended() {
  local code=$?
  trap - EXIT
  rm -rf "$work"
  [ -n "${HIGHWATER_KUBELET_STAY:-}" ] || "$HERE/down.sh" || true
  exit "$code"
}
trap ended EXIT
trap 'exit 130' INT TERM
if [ -n "${HIGHWATER_KUBELET_STAY:-}" ] && [ -e "$STATE" ]; then
  say "using the cluster that is up"
else
  "$HERE/up.sh"
fi
"$HERE/images.sh" highwater client
"$HERE/load.sh"
go build -o "$work/program" "$package"
"$HERE/in.sh" "$work/program" --root "$ROOT" --machine "$HERE" "$@"

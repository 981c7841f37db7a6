#!/usr/bin/env bash
# helm-test.sh: what `make helm-test` runs. First what needs no cluster, then the chart's life on real kubelets, which
# needs root or KUBECONFIG (hack/kubelet/README.md); where that can't run it exits 3 after the first part.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/highwater/helm
export GOFLAGS=-trimpath CGO_ENABLED=0
mkdir -p "$cache"
echo "helm-test: building Helm from hack/tools/helm (some minutes, once)" >&2
(cd "$root/hack/tools/helm" && nice go build -ldflags "-s -w" -o "$cache/helm" helm.sh/helm/v4/cmd/helm)
# Neither the user's settings nor plug-ins take part.
export HELM_CONFIG_HOME=$cache/config HELM_CACHE_HOME=$cache/cache HELM_DATA_HOME=$cache/data
cd "$root"
go run ./test/helm --static --helm "$cache/helm"
exec hack/kubelet/with.sh ./test/helm --helm "$cache/helm" "$@"

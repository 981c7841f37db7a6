#!/usr/bin/env bash
# up.sh: a Kubernetes cluster on this machine: API server, scheduler, controller manager, DNS, and a real kubelet with
# containerd for each of three nodes, each in its own network namespace. About half a minute when its binaries are built.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ ! -e "$STATE" ] || die "a cluster is up or was left behind in $STATE: hack/kubelet/down.sh removes it"
"$HERE/require.sh"
if [ ! -x "$KUBE/kubelet" ]; then
  say "building Kubernetes $KUBERNETES_VERSION: up to 20 minutes on two cores, once"
  nice "$ROOT/hack/kube/build.sh" cluster "$KUBE"
fi

trap 'say "the cluster did not come up"; "$HERE/down.sh"' ERR
mkdir -p "$STATE/images"
# The kubelet sets these for the whole machine; down.sh puts them back.
sysctl kernel.panic kernel.panic_on_oops vm.overcommit_memory | sed 's/ = /=/' >"$STATE/sysctl"
"$HERE/images.sh" pause coredns
say "network"
"$HERE/network.sh" up
say "control plane"
"$HERE/pki.sh"
"$HERE/controlplane.sh" up
say "nodes: ${NODES[*]}"
for node in "${NODES[@]}"; do "$HERE/node.sh" start "$node"; done
all_ready() { [ "$(kubectl get nodes --no-headers | grep -cw Ready)" = "${#NODES[@]}" ]; }
wait_for 120 "${#NODES[@]} Ready nodes (logs: $STATE/nodes/*/kubelet.log)" all_ready
"$HERE/volumes.sh"
kubectl apply --server-side -f "$HERE/manifests/coredns.yaml" >/dev/null
kubectl -n kube-system rollout status deployment/coredns --timeout=90s >/dev/null
trap - ERR
say "up: ${NODES[*]}; run commands with hack/kubelet/in.sh, kubeconfig $KUBECONFIG_ADMIN"

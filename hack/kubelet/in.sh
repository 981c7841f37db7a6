#!/usr/bin/env bash
# in.sh COMMAND...: run a command where it reaches the cluster, with its kubectl and kubeconfig.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
[ -e "/run/netns/$(netns cp)" ] || die "no cluster is up: hack/kubelet/up.sh"
export KUBECONFIG=$KUBECONFIG_ADMIN PATH=$KUBE:$PATH
exec nsenter --net="/run/netns/$(netns cp)" "$@"

#!/usr/bin/env bash
# controlplane.sh up|down: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in a namespace of their own.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
group=$PREFIX-cp

component() { local name=$1; shift; start "$name" "$group" nsenter --net="/run/netns/$(netns cp)" "$KUBE/$name" "$@"; }

ready() { inside cp curl -sf --max-time 2 --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "https://$API:6443/readyz"; }

up() {
  # No fsync: this etcd's data is worth nothing after the test, and its fsyncs would slow those that are measured.
  component etcd --data-dir "$STATE/etcd" --unsafe-no-fsync --listen-peer-urls http://127.0.0.1:2380 \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
  # Pods leave a dead node after 15 s and not after five minutes.
  component kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$API" --secure-port=6443 \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/sa.pub" \
    --service-account-signing-key-file="$PKI/sa.key" --service-cluster-ip-range="$SERVICE_NET.0.0/16" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$PKI/ca.crt" \
    --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key" \
    --default-not-ready-toleration-seconds=15 --default-unreachable-toleration-seconds=15
  wait_for 120 "kube-apiserver answers (log: $STATE/kube-apiserver.log)" ready
  component kube-controller-manager --kubeconfig="$PKI/controller-manager.kubeconfig" --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
    --node-monitor-period=2s --node-monitor-grace-period=12s --bind-address=127.0.0.1
  component kube-scheduler --kubeconfig="$PKI/scheduler.kubeconfig" --leader-elect=false --bind-address=127.0.0.1
}

down() {
  stop kube-scheduler "$group"
  stop kube-controller-manager "$group"
  stop kube-apiserver "$group" # before etcd: without it the API server hangs on its way out
  stop etcd "$group"
  end_all "$group"
  drop_cgroup "$group"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  *) die "usage: controlplane.sh up|down" ;;
esac

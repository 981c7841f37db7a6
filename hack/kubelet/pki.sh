#!/usr/bin/env bash
# pki.sh: a CA, a certificate and a kubeconfig for each component, into $STATE/pki. Thrown away with the cluster.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
umask 077
mkdir -p "$PKI"
cd "$PKI"

# openssl tells of its progress on standard error; that matters when it fails.
ssl() { openssl "$@" 2>>openssl.log || die "openssl $1: $(tail -n 1 openssl.log)"; }

ssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt \
  -subj "/CN=highwater-kubelet" -days 30
ssl genrsa -out sa.key 2048
ssl rsa -in sa.key -pubout -out sa.pub

# certificate FILE SUBJECT [ALTERNATIVE-NAMES]
certificate() {
  ssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2"
  {
    echo "keyUsage = digitalSignature"
    echo "extendedKeyUsage = clientAuth, serverAuth"
    [ -z "${3:-}" ] || echo "subjectAltName = $3"
  } >"$1.ext"
  ssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt"
}

kubeconfig() {
  cat >"$1.kubeconfig" <<Y
apiVersion: v1
kind: Config
clusters:
- name: highwater-kubelet
  cluster: {server: "https://$API:6443", certificate-authority: $PKI/ca.crt}
users:
- name: $1
  user: {client-certificate: $PKI/$1.crt, client-key: $PKI/$1.key}
contexts:
- name: highwater-kubelet
  context: {cluster: highwater-kubelet, user: $1}
current-context: highwater-kubelet
Y
}

certificate apiserver /CN=kube-apiserver \
  "IP:$API,IP:127.0.0.1,IP:$SERVICE_NET.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
certificate admin /O=system:masters/CN=admin
certificate controller-manager /CN=system:kube-controller-manager
certificate scheduler /CN=system:kube-scheduler
certificate proxy /CN=system:kube-proxy
for name in admin controller-manager scheduler proxy; do kubeconfig "$name"; done
for node in "${NODES[@]}"; do
  certificate "$node" "/O=system:nodes/CN=system:node:$node" "IP:$(address "$node"),DNS:$node"
  kubeconfig "$node"
done

#!/usr/bin/env bash
# node-main.sh NODE: the inside of a node, in its own network, mount and UTS namespace. Called by node.sh.
#
# Containerd and kubelet want fixed places in /var/lib, /run and /var/log: each node gets folders of its own there.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
node=$1
disk=$STATE/nodes/$node etc=$STATE/nodes/$node/etc

hostname "$node"
mount --make-rshared / # the kubelet's mounts have to reach the containers
mkdir -p "$disk/var/lib"/{kubelet,containerd,cni} "$disk/var/log"/{pods,containers}
mount --bind "$disk/var/lib" /var/lib
mount --bind "$disk/var/log" /var/log
mount --bind "$disk/run" /run

cat >"$etc/cni/10-pods.conflist" <<J
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": "$POD_NET.$(number "$node").0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
J

cat >"$etc/containerd.toml" <<T
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local/pause:1"
  # Without CAP_SYS_RESOURCE, as in many containers, nobody's score can be lowered.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${CNI_BIN:-/usr/lib/cni}"
    conf_dir = "$etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
T

: >"$etc/resolv.conf" # pods with dnsPolicy Default have no name server: there is nothing outside
cat >"$etc/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/$node.crt
tlsPrivateKeyFile: $PKI/$node.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$PREFIX-$node
failCgroupV1: false
enforceNodeAllocatable: [pods]
failSwapOn: false
oomScoreAdj: 0
clusterDNS: ["$SERVICE_NET.0.10"]
clusterDomain: cluster.local
resolvConf: $etc/resolv.conf
# The nodes share one disk with whatever else is on the machine: its fullness is not theirs to judge.
evictionHard: {memory.available: 50Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 3s
nodeLeaseDurationSeconds: 9
# How soon a changed annotation reaches a downwardAPI volume; the default is a minute.
syncFrequency: 10s
Y
cat >"$etc/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $PKI/proxy.kubeconfig}
clusterCIDR: $POD_NET.0.0/16
hostnameOverride: $node
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
Y

service() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >>"$disk/$name.log" 2>&1 &
  echo $! >"$disk/$name.pid"
}

service containerd containerd --config "$etc/containerd.toml"
wait_for 60 "containerd of $node answers (log: $disk/containerd.log)" ctr version
"$HERE/import.sh" "$node"
service kubelet "$KUBE/kubelet" --config "$etc/kubelet.yaml" --kubeconfig "$PKI/$node.kubeconfig" \
  --hostname-override "$node" --node-ip "$(address "$node")" --node-labels "topology.kubernetes.io/zone=z$(number "$node")"
service kube-proxy "$KUBE/kube-proxy" --config "$etc/kube-proxy.yaml"
wait

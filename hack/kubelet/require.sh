#!/usr/bin/env bash
# require.sh: can this machine run the cluster? Installs missing Debian packages, and says which. Exits 3 with
# `NOT RUN: why` when it can't be.
set -euo pipefail
. "$(dirname "$0")/settings.sh"

[ "$(uname -s)" = Linux ] || not_run "a kubelet needs Linux"
[ "$(id -u)" = 0 ] || not_run "network namespaces and containerd need root"
command -v go >/dev/null || not_run "go is not in PATH"

# package:command that tells whether it is there
wanted=(containerd:containerd runc:runc containernetworking-plugins:/usr/lib/cni/bridge iptables:iptables nftables:nft
  conntrack:conntrack ipset:ipset socat:socat ethtool:ethtool iproute2:ip util-linux:nsenter openssl:openssl
  curl:curl buildah:buildah busybox-static:busybox ca-certificates:/etc/ssl/certs/ca-certificates.crt procps:sysctl)
missing=()
for entry in "${wanted[@]}"; do
  tell=${entry#*:}
  [ -e "$tell" ] || command -v "$tell" >/dev/null || missing+=("${entry%%:*}")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null || not_run "missing and no apt-get to install them: ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  mkdir -p "$CACHE"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
    >"$CACHE/apt.log" 2>&1 || not_run "apt-get can't install ${missing[*]}: $(tail -n 1 "$CACHE/apt.log")"
fi

probe=$PREFIX-probe
trap 'ip netns del "$probe" 2>/dev/null || true; drop_cgroup "$probe"' EXIT
ip netns add "$probe" 2>/dev/null || not_run "no right to make a network namespace"
ip -n "$probe" link add br0 type bridge 2>/dev/null || not_run "this kernel makes no bridge"
nsenter --net="/run/netns/$probe" nft add table ip probe 2>/dev/null || not_run "this kernel has no nftables"
unshare --mount --propagation private true 2>/dev/null || not_run "no right to make a mount namespace"
(enter_cgroup "$probe") 2>/dev/null || not_run "no right to make cgroups under /sys/fs/cgroup"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || not_run "this kernel has no overlayfs"

#!/usr/bin/env bash
# build.sh envtest|cluster OUTDIR — build this module's binary and lay the symlinks it is called by.
#
# envtest is etcd, kube-apiserver and kubectl (6 to 12 minutes with cold caches on two cores, seconds after
# that); cluster adds the controller manager, scheduler, kubelet and kube-proxy. Prints a line every ten
# seconds, since the linker says nothing by itself. OUTDIR is filled last, by rename, so that a build that was
# interrupted is never taken for a whole one.
set -euo pipefail
kind=${1:?usage: build.sh envtest|cluster OUTDIR}
out=${2:?usage: build.sh envtest|cluster OUTDIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")"
case $kind in
  envtest) names="etcd kube-apiserver kubectl" ;;
  cluster) names="etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kube-proxy" ;;
  *) echo "build.sh: unknown kind $kind: use envtest or cluster" >&2; exit 2 ;;
esac
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
stamp=k8s.io/component-base/version
ldflags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}"
ldflags="$ldflags -X $stamp.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$version"

work=$(mktemp -d "$out/.build-XXXXXX")
trap 'rm -rf "$work"; kill "$ticker" 2>/dev/null || true' EXIT
started=$SECONDS
(while sleep 10; do
  printf 'building Kubernetes %s (%s): %d s\n' "$version" "$kind" $((SECONDS - started)) >&2
done) &
ticker=$!
go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$work/$kind" "./$kind"
mv -f "$work/$kind" "$out/.$kind-$version"
for name in $names; do
  ln -sf ".$kind-$version" "$work/$name"
  mv -f "$work/$name" "$out/$name"
done
printf 'built Kubernetes %s (%s) in %d s: %s\n' "$version" "$kind" $((SECONDS - started)) "$out" >&2

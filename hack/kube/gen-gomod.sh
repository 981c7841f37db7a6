#!/usr/bin/env bash
# gen-gomod.sh KUBERNETES_VERSION — write go.mod and go.sum of this module anew.
#
# k8s.io/kubernetes requires its staging modules (k8s.io/api, k8s.io/client-go, ...) as v0.0.0 and replaces
# them with folders of its own tree. A module that imports it must therefore replace each of them with the tag
# of the same release. This module stands alone so that those replaces reach nothing else.
set -euo pipefail
cd "$(dirname "$0")"
version=${1:?usage: gen-gomod.sh v1.37.2}
staging=v0.${version#v1.}
rm -f go.mod go.sum
go mod init github.com/highwater-io/highwater/hack/kube 2>/dev/null
upstream=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
edits=(-go=1.26.0 "-require=k8s.io/kubernetes@$version")
while read -r module; do edits+=("-replace=$module=$module@$staging"); done < <(
  sed -n 's|^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*|\1|p' "$upstream")
go mod edit "${edits[@]}"
go mod tidy

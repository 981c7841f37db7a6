#!/usr/bin/env bash
# images.sh [pause|coredns|highwater|client]...: images as tars in $STATE/images, by buildah and without a daemon.
#
# The project's image is made by its own Dockerfile. That begins with a golang image of Docker Hub; where the hub
# can't be reached, this machine's own Go stands in for it: the result is the same static binaries on an empty image.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
export GOFLAGS=-trimpath CGO_ENABLED=0
golang=docker.io/library/golang:1.26
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
printf 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n' >"$tmp/registries.conf"
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >"$tmp/policy.json"
export CONTAINERS_REGISTRIES_CONF=$tmp/registries.conf
buildah() { command buildah --root "$CACHE/buildah" --runroot "$STATE/buildah" "$@"; }

# tar_of NAME FILE: by rename, so that nobody imports half an image.
tar_of() {
  rm -f "$tmp/image.tar"
  buildah push -q --signature-policy "$tmp/policy.json" "$1" "oci-archive:$tmp/image.tar:$1"
  mkdir -p "$STATE/images"
  mv "$tmp/image.tar" "$STATE/images/$2.tar"
}

# image_of NAME FILE BINARY: one static binary and nothing else.
image_of() {
  local context=$tmp/context
  mkdir -p "$context"
  cp "$3" "$context/program"
  printf 'FROM scratch\nCOPY program /%s\nUSER 65532:65532\nENTRYPOINT ["/%s"]\n' "$2" "$2" >"$context/Dockerfile"
  buildah bud -q --signature-policy "$tmp/policy.json" --isolation chroot -t "$1" "$context" >/dev/null
  tar_of "$1" "$2"
}

# stand_in: an image by the name of the Dockerfile's base with this machine's Go and busybox.
stand_in() {
  local label container mount applet
  label=$(go env GOVERSION)
  [ "$(buildah inspect -t image -f '{{index .OCIv1.Config.Labels "go"}}' "$golang" 2>/dev/null)" != "$label" ] || return 0
  say "Docker Hub can't be reached: an image with this machine's $label stands in for $golang"
  container=$(buildah from --signature-policy "$tmp/policy.json" scratch)
  mount=$(buildah mount "$container")
  mkdir -p "$mount"/{bin,tmp,root,go,etc/ssl/certs,usr/local}
  chmod 1777 "$mount/tmp"
  cp "$(command -v busybox)" "$mount/bin/busybox"
  for applet in $("$mount/bin/busybox" --list); do
    [ -e "$mount/bin/$applet" ] || ln -s busybox "$mount/bin/$applet" # it lists itself too
  done
  cp -a "$(go env GOROOT)" "$mount/usr/local/go"
  cp -L /etc/ssl/certs/ca-certificates.crt "$mount/etc/ssl/certs/"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$mount/etc/passwd"
  buildah umount "$container" >/dev/null
  buildah config --env PATH=/usr/local/go/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local \
    --workingdir /go --label "go=$label" "$container"
  buildah commit -q --rm --signature-policy "$tmp/policy.json" "$container" "$golang" >/dev/null
}

project() {
  local pull=--pull-never
  if curl -s -o /dev/null --max-time 10 https://registry-1.docker.io/v2/; then pull=--pull; else stand_in; fi
  # The build uses this machine's caches and its way to the modules.
  mkdir -p "$tmp/go"
  go env GOPROXY GOSUMDB GONOSUMDB GOPRIVATE | paste -d= <(printf '%s\n' GOPROXY GOSUMDB GONOSUMDB GOPRIVATE) - >"$tmp/go/env"
  buildah bud -q "$pull" --signature-policy "$tmp/policy.json" --isolation chroot --network host \
    --build-arg "VERSION=$(git -C "$ROOT" describe --tags --always --dirty 2>/dev/null || echo dev)" \
    --volume "$tmp/go:/root/.config/go:ro" --volume "$(go env GOCACHE):/root/.cache/go-build" \
    --volume "$(go env GOMODCACHE):/go/pkg/mod" -t docker.io/library/highwater:latest "$ROOT" >"$tmp/build.log" 2>&1 ||
    { cat "$tmp/build.log" >&2; die "buildah can't build the Dockerfile"; }
  tar_of docker.io/library/highwater:latest highwater
}

go_program() { # MODULE-FOLDER PACKAGE
  (cd "$1" && nice go build -ldflags "-s -w" -o "$tmp/program" "$2")
}

for image in "$@"; do
  say "image $image"
  case $image in
    pause) go_program "$ROOT" ./hack/kubelet/pause && image_of registry.local/pause:1 pause "$tmp/program" ;;
    coredns)
      # A minute or five when cold: it says so by itself only when it fails.
      go_program "$HERE/coredns" . && image_of registry.local/coredns:1 coredns "$tmp/program" ;;
    highwater) project ;;
    client) go_program "$ROOT" ./test/e2e/kubelet/client && image_of registry.local/highwater-e2e-client:1 client "$tmp/program" ;;
    *) die "unknown image $image: pause, coredns, highwater, client" ;;
  esac
done

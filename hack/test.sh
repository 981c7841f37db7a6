#!/usr/bin/env bash
# test.sh: what `make test` runs. Needs Go, git and, for the race detector, a C compiler; no root, no Java.
# It ends with go test's own summary, one line a package, and exits non-zero when one failed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v "${CC:-gcc}" >/dev/null; then
  echo "make test: the race detector needs a C compiler (gcc, or CC=clang)" >&2
  exit 2
fi
KUBEBUILDER_ASSETS=$(go run ./cmd/highwater dev assets)
export KUBEBUILDER_ASSETS
echo "make test: API server in $KUBEBUILDER_ASSETS; building the binaries that process tests run" >&2
make --no-print-directory build
export HIGHWATER_BIN=$PWD/bin
# The simulator has one goroutine a schedule: the race detector would find nothing there and take ten times as long.
# Fresh schedules, of which the seed is printed; make sim plays more of them.
env CGO_ENABLED=0 go build -o bin/proofs/sim ./test/sim
bin/proofs/sim -quorum=1000 -isr=500
env CGO_ENABLED=0 go test -timeout 20m ./pkg/sim
# -p 2: the packages with real processes and API servers time out when more of them share two cores.
mapfile -t packages < <(go list ./... | grep -v '/pkg/sim$')
exec env CGO_ENABLED=1 go test -race -p 2 -timeout 20m "$@" "${packages[@]}"

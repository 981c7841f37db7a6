#!/usr/bin/env bash
# fuzz-log.sh: runs every fuzz target of the packages that read what lies on a disk, each for FUZZTIME (30s), and
# says how many inputs were tried. It goes on after a failure, prints the input's file and how to try it again, and
# exits 1. Inputs that failed stay in testdata/fuzz of the package: commit them with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(./pkg/batch ./pkg/log ./pkg/metadata ./pkg/node/exec)
time=${FUZZTIME:-30s}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
targets=0 failed=0 total=0
for package in "${packages[@]}"; do
	names=$(go test -list '^Fuzz' "$package" | grep '^Fuzz') || { echo "fuzz-log: no fuzz target in $package" >&2; exit 1; }
	for name in $names; do
		targets=$((targets + 1))
		if go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -parallel "${FUZZPARALLEL:-2}" "$package" >"$output" 2>&1; then
			verdict=ok
		else
			verdict=FAILED failed=$((failed + 1))
		fi
		execs=$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' "$output" | tail -n 1)
		total=$((total + ${execs:-0}))
		printf 'fuzz-log: %-16s %-22s %10s execs  %s\n' "$package" "$name" "${execs:-0}" "$verdict"
		[ $verdict = ok ] || tail -n 40 "$output"
	done
done
echo "fuzz-log: $targets targets, $total execs, $failed failed"
[ $failed -eq 0 ]

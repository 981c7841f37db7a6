#!/usr/bin/env bash
# Has Apache Kafka's own decoder (DumpLogSegments) read what lies in the given folders, and says whether it can:
#   decode.sh DIR...
# Metadata logs (folders __cluster_metadata-*) and snapshots (*.checkpoint) are read record by record with the
# metadata decoder, other segments with deep iteration, offset and time indexes are compared with their segments
# and sanity checked, producer snapshots are parsed, and SmallFiles.java has Kafka's own classes read checkpoints,
# leader epochs, the mark of a clean shutdown, and the files that say whose a directory is. Every complaint is printed.
# Exit status: 0 all readable; 1 a complaint, or nothing to read; 2 usage; 3 "NOT RUN: why" without Java or the jars.
# DUMP=FILE keeps what the decoder printed. COMPACTED=yes says that logs are compacted: then gaps between offsets are
# no complaint, nor is a time index entry of a batch whose records are gone, whose time the decoder takes from records.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || { sed -n '2,12s/^# *//p' "$0" >&2; exit 2; }
for dir in "$@"; do [ -d "$dir" ] || { echo "decode: $dir is no folder" >&2; exit 2; }; done
"$here/fetch.sh" >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dump=$work/dump
status=0

# What the decoder prints when something is wrong; it goes on and exits with 0.
complaint='isvalid: false|skipping\.|^Found |^Mismatches in|^Non-consecutive offsets|[Mm]ismatch|out of order|Ignoring unknown file|Exception|is corrupt'

known='^$'
[ -z "${COMPACTED:-}" ] || known='^Non-consecutive offsets|^Found timestamp mismatch'

# decode WHAT ARGS... reads the names of files from stdin; none may have a comma. It sets status and read_any, so it
# must not stand behind a pipe.
decode() {
	local what=$1 words='(key|payload): ' files n
	shift
	[ "${1:-}" != --cluster-metadata-decoder ] || words='payload: [{]'
	files=$(sort | paste -sd,)
	[ -n "$files" ] || return 0
	n=$(tr -cd , <<<"$files" | wc -c)
	echo "decode: $((n + 1)) $what" >&2
	read_any=yes
	if ! "$here/run.sh" kafka.tools.DumpLogSegments "$@" --files "$files" >"$dump" 2>"$work/err"; then
		echo "decode: the decoder failed on $what" >&2
		status=1
	fi
	if [ "${DUMP:-}" ]; then cat "$dump" >>"$DUMP"; fi
	# A record's own words are no complaint: the JSON of a metadata record, key and payload of any other.
	if cat "$dump" "$work/err" | sed -E "s/$words.*//" | grep -E "$complaint" | grep -vE "$known" >&2; then status=1; fi
}

[ -z "${DUMP:-}" ] || : >"$DUMP"
read_any=no
# The decoder takes a snapshot's position from its name, which Kafka's bootstrap.checkpoint has not.
while IFS= read -r file; do
	mkdir -p "$work/boot"
	boot=$(mktemp -d "$work/boot/XXXX")
	cp "$file" "$boot/00000000000000000000-0000000000.checkpoint"
done < <(find "$@" -type f -name bootstrap.checkpoint)

metadata=(-path '*__cluster_metadata-*/*')
find "$@" -type f -name '*.log' "${metadata[@]}" >"$work/list"
decode "metadata log segments" --cluster-metadata-decoder <"$work/list"
{ find "$@" -type f -name '*-*.checkpoint'; find "$work" -type f -name '*.checkpoint'; } >"$work/list"
decode "snapshots" --cluster-metadata-decoder <"$work/list"
find "$@" -type f -name '[0-9]*.log' ! "${metadata[@]}" >"$work/list"
decode "segments" --deep-iteration --print-data-log <"$work/list"
find "$@" -type f \( -name '*.index' -o -name '*.timeindex' \) -size +0 >"$work/list"
decode "indexes against their segments" <"$work/list"
decode "indexes for sanity" --index-sanity-check <"$work/list"
decode "indexes alone" --verify-index-only <"$work/list"
find "$@" -type f -name '*[0-9].snapshot' >"$work/list"
decode "producer snapshots" <"$work/list"

small=$(find "$@" -type f \( -name '*-checkpoint' -o -name partition.metadata -o -name meta.properties -o -name quorum-state -o -name .kafka_cleanshutdown \) | wc -l)
if [ "$small" -gt 0 ]; then
	echo "decode: $small small files" >&2
	read_any=yes
	if ! "$here/run.sh" "$here/SmallFiles.java" "$@" >"$dump" 2>"$work/err"; then
		cat "$work/err" >&2
		grep UNREADABLE "$dump" >&2 || true
		status=1
	fi
	if [ "${DUMP:-}" ]; then cat "$dump" >>"$DUMP"; fi
fi

if [ "$read_any" = no ]; then
	echo "decode: there is nothing in $* that Kafka's decoder reads" >&2
	exit 1
fi
[ $status -ne 0 ] || echo "decode: Apache Kafka reads all of it" >&2
exit $status

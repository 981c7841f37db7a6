#!/usr/bin/env bash
# Starts and stops a Kafka node that was formatted before.
#   node.sh start DIR   runs kafka.Kafka with DIR/server.properties; DIR/pid and DIR/server.log are its
#   node.sh stop DIR    SIGTERM, waits until it has shut down cleanly (60 s at most)
#   node.sh kill DIR    SIGKILL
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -eq 2 ] || { sed -n '2,5s/^# *//p' "$0" >&2; exit 2; }
dir=$2

wait_gone() {
	for _ in $(seq "$2"); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done
	return 1
}

case $1 in
start)
	nohup "$here/run.sh" kafka.Kafka "$dir/server.properties" >>"$dir/server.log" 2>&1 </dev/null &
	echo $! >"$dir/pid"
	;;
stop | kill)
	[ -f "$dir/pid" ] || exit 0
	pid=$(cat "$dir/pid")
	signal=TERM; [ "$1" = stop ] || signal=KILL
	kill -$signal "$pid" 2>/dev/null || true
	if ! wait_gone "$pid" 600; then
		echo "node in $dir did not stop within 60 s; killing it" >&2
		kill -KILL "$pid" 2>/dev/null || true
		wait_gone "$pid" 50 || true
	fi
	rm -f "$dir/pid"
	;;
*) echo "node.sh: $1?" >&2; exit 2 ;;
esac

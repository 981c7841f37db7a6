#!/usr/bin/env bash
# Makes pkg/metadata/testdata/kafka-<major.minor>/ anew with a real Apache Kafka: the metadata log, snapshots and
# small files of a plain node ("single") and of two nodes with everything that has a metadata record ("features").
#   make-golden.sh [OUT [single|features]...]   another folder, one scenario alone
# Needs Java 17, Maven and Go; about two minutes. All processes listen on 127.0.0.1 and end with this script.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lib=$("$here/fetch.sh")
version=$(basename "$(dirname "$lib")")
out=${1:-$root/pkg/metadata/testdata/kafka-${version%.*}}
scenarios=("${@:2}")
[ ${#scenarios[@]} -gt 0 ] || scenarios=(single features)
work=$(mktemp -d)
cleanup() {
	for dir in "$work"/*/node*; do [ ! -d "$dir" ] || "$here/node.sh" kill "$dir"; done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { echo "make-golden: $*" >&2; }

port=$((20000 + RANDOM % 20000))
free_port() { # sets $port to the next one that nobody listens on
	while :; do
		port=$((port + 1))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
	done
}

# config NODE_DIR ID ROLES CLIENT_PORT CONTROLLER_PORT: the part of server.properties that both scenarios share.
config() {
	local dir=$1 id=$2 roles=$3 client=$4 controller=$5
	mkdir -p "$dir"
	cat >"$dir/server.properties" <<-END
		process.roles=$roles
		node.id=$id
		controller.quorum.bootstrap.servers=127.0.0.1:$controller
		controller.listener.names=CONTROLLER
		inter.broker.listener.name=PLAINTEXT
		listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
		log.dirs=$dir/data
		broker.rack=rack-$id
		auto.create.topics.enable=false
		group.initial.rebalance.delay.ms=0
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=1
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		broker.session.timeout.ms=3000
		broker.heartbeat.interval.ms=500
		metadata.log.max.record.bytes.between.snapshots=4000
		num.network.threads=1
		num.io.threads=2
		log.cleaner.dedupe.buffer.size=1048577
	END
	if [ "$roles" = broker ]; then
		echo "listeners=PLAINTEXT://127.0.0.1:$client" >>"$dir/server.properties"
	else
		echo "listeners=PLAINTEXT://127.0.0.1:$client,CONTROLLER://127.0.0.1:$controller${6:+,SASL://127.0.0.1:$6}" >>"$dir/server.properties"
	fi
}

format() { # NODE_DIR CLUSTER_ID ARGS...
	local dir=$1 id=$2
	shift 2
	"$here/run.sh" kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" "$@" >&2
}

copy() { # SCENARIO NODE PARTITIONS...: what tests read, into $out/SCENARIO/NODE
	local from=$work/$1/$2/data to=$out/$1/$2
	shift 2
	mkdir -p "$to"
	cp "$from"/meta.properties "$to"
	[ ! -f "$from/bootstrap.checkpoint" ] || cp "$from/bootstrap.checkpoint" "$to"
	cp "$from"/*checkpoint* "$to"
	for partition in __cluster_metadata-0 "$@"; do
		mkdir -p "$to/$partition"
		find "$from/$partition" -maxdepth 1 -type f ! -name '*.tmp' -exec cp -t "$to/$partition" {} +
	done
}

export KAFKA_HEAP=384m
driver=$work/golden
(cd "$root" && go build -o "$driver" ./hack/kafka/golden)

single() {
	say "single: one combined node, kraft.version 1, no eligible leader replicas"
	local dir=$work/single/node1
	free_port; client=$port
	free_port; controller=$port
	config "$dir" 1 broker,controller "$client" "$controller"
	format "$dir" "U2luZ2xlLWdvbGRlbi0xLg" --standalone --release-version 4.1-IV1 --feature eligible.leader.replicas.version=0
	"$here/node.sh" start "$dir"
	"$driver" single "127.0.0.1:$client" "$dir" || { tail -n 40 "$dir/server.log" >&2; exit 1; }
	"$here/node.sh" stop "$dir"
	copy single node1 orders-0
}

features() {
	say "features: two nodes, eligible leader replicas, users, ACLs, quotas, tokens, elections"
	local dir one=$work/features/node1 two=$work/features/node2
	free_port; client=$port
	free_port; controller=$port
	free_port; sasl=$port
	free_port; client2=$port
	config "$one" 1 broker,controller "$client" "$controller" "$sasl"
	config "$two" 2 broker "$client2" "$controller"
	for dir in "$one" "$two"; do
		cat >>"$dir/server.properties" <<-END
			authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
			super.users=User:ANONYMOUS;User:alice
			sasl.enabled.mechanisms=SCRAM-SHA-256
			listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
			delegation.token.secret.key=golden
		END
	done
	local id="RmVhdHVyZXMtZ29sZGVuLg"
	format "$one" "$id" --standalone --release-version 4.1-IV1 --add-scram 'SCRAM-SHA-256=[name=root,password=secret,iterations=4096]'
	format "$two" "$id" --no-initial-controllers --release-version 4.1-IV1
	"$here/node.sh" start "$one"
	"$here/node.sh" start "$two"
	"$driver" features "127.0.0.1:$client" "127.0.0.1:$sasl" "$one" "$two" "$here/node.sh" || { tail -n 40 "$one/server.log" "$two/server.log" >&2; exit 1; }
	"$here/node.sh" stop "$one"
	copy features node1 pairs-0 __transaction_state-0
	copy features node2
}

[ $# -gt 0 ] || rm -rf "$out"
for scenario in "${scenarios[@]}"; do "$scenario"; done
say "done:"
(cd "$out" && find . -type f -printf '%8s %P\n' | sort -k2) >&2
du -sh "$out" >&2

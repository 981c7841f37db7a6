#!/usr/bin/env bash
# Runs one of Kafka's classes with the jars of fetch.sh: run.sh kafka.tools.StorageTool random-uuid
# KAFKA_HEAP (512m) bounds the heap, KAFKA_JVM_ARGS has further flags, KAFKA_LOG_LEVEL (warn) says how much it tells.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lib=$("$here/fetch.sh")
exec java -Xms64m -Xmx"${KAFKA_HEAP:-512m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true ${KAFKA_JVM_ARGS:-} \
	-Dlog4j2.configurationFile="file:$here/log4j2.properties" -cp "$lib/*" "$@"

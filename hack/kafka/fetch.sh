#!/usr/bin/env bash
# Puts the jars of a real Apache Kafka into the user's cache and prints the folder they are in. The version is
# pom.xml's, or KAFKA_VERSION. Progress goes to stderr. Exits 3 with a line "NOT RUN: why" where Java or Maven is
# missing or Maven can't get the jars.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${KAFKA_VERSION:-$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")}
lib=${XDG_CACHE_HOME:-$HOME/.cache}/highwater/kafka/$version/lib

not_run() { echo "NOT RUN: $*" >&2; exit 3; }
command -v java >/dev/null || not_run "there is no java (17 or newer) on the PATH"
if [ -f "$lib/.whole" ]; then echo "$lib"; exit 0; fi
command -v mvn >/dev/null || not_run "there is no mvn on the PATH to fetch Apache Kafka $version with"

mkdir -p "$(dirname "$lib")"
part=$(mktemp -d "$(dirname "$lib")/lib.XXXXXX")
trap 'rm -rf "$part"' EXIT
echo "kafka $version: fetching its jars with Maven (140 MB when nothing is cached)" >&2
# A copy, so that Maven leaves nothing behind in the source tree.
cp "$here/pom.xml" "$part/pom.xml"
if ! (cd "$part" && mvn -B -Dkafka.version="$version" -Dorg.slf4j.simpleLogger.showDateTime=false \
	org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
	-DincludeScope=runtime -DoutputDirectory="$part/jars" >"$part/log" 2>&1); then
	tail -n 20 "$part/log" >&2
	not_run "Maven could not fetch Apache Kafka $version"
fi
touch "$part/jars/.whole"
rm -rf "$lib"
mv "$part/jars" "$lib"
echo "kafka $version: $(find "$lib" -name '*.jar' | wc -l) jars in $lib" >&2
echo "$lib"

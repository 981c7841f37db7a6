#!/usr/bin/env bash
# Apache Kafka's decoder reads what our code writes: the tests behind the build tag kafkadecode.
# Exits 3 with "NOT RUN: why" where Java, or Maven and the jars, are missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/fetch.sh" >/dev/null
cd "$here/../.."
exec go test -count=1 -tags kafkadecode "$@" ./test/kafkadecode/...

// Package kafkadecode has Apache Kafka's own log decoder read what our code writes, and compares what it saw with
// what was written. It needs Java and the jars of hack/kafka/fetch.sh, so its tests are behind the build tag
// kafkadecode; `make kafka-decode` runs them.
package kafkadecode

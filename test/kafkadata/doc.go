// Command kafkadata proves that a data directory is Apache Kafka's as much as ours: a node writes one, a real Kafka
// starts on a copy of it and serves the same bytes, writes on, and the node takes it back; and the same beginning with
// a directory that Kafka has formatted and written. It exits 3 with "NOT RUN: why" where Java or the jars are missing.
package main

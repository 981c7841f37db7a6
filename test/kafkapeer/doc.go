// Command kafkapeer shows Apache Kafka as a peer of this cluster: its tools ask our quorum, a stock broker of it lives
// in our cluster beside our nodes, and our decoder reads what its controllers write.
//
// It runs three voters, two data nodes and Apache Kafka's jars as processes on a loopback address of their own, prints
// each check with what it saw, and exits 1 when one fails. It exits 3 with "NOT RUN: why" where Java or the jars are
// missing.
package main

// Package wire speaks Kafka's protocol over kmsg: a server for one listener (framing, versions, ordered
// asynchronous answers, the Fetch encoder) and a pipelining client.
package wire

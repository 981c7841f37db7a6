// Package rpc turns the messages of the quorum's core into Kafka's requests and responses and back. It is pure.
//
// All of them are about one partition, __cluster_metadata-0; a request for any other gets INVALID_REQUEST, as
// Kafka does "until we support multi-raft".
package rpc

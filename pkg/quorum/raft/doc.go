// Package raft is the pure core of the metadata quorum: KRaft, Kafka's pull-based Raft (KIP-595, KIP-853,
// KIP-996). It is given instants and events and says what to persist and send; it has no goroutine, clock,
// randomness of its own, file or socket, and never sees the bytes of a record.
//
// Read it in this order: role.go (the states), node.go (one step), election.go (votes), leader.go (replication
// from the leader's side), follower.go (from the other), effects.go (what the executor must do, in which order).
package raft

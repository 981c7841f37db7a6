// Package node is the process of a Highwater node: its listeners, loops and clocks around the pure cores.
//
// Data flows one way through the files. A request comes in through a listener (pkg/wire), is routed by
// router.go to a handler named for its API (produce.go, fetch.go, ...), and ends in an executor
// (pkg/node/exec) that drives a core. Metadata flows from the quorum loop (quorum.go) through the publisher
// (publisher.go), which turns committed records into images, to whoever acts on them: the controller loop on
// the active voter, the replica manager and the broker life cycle on a data node.
//
// These loops are the only part of the engine with goroutines, sockets and a real clock.
package node

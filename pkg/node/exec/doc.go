// Package exec has the executors: each owns a log (and the like) on a file system and a pure core, does what the core
// wants done on the disk, and tells it how that went. They are synchronous, have no goroutine, clock, lock or socket,
// and are the part of a node that the simulator runs as it ships.
package exec

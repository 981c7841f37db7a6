// Package partition brings what Partitions ask for to the cluster of their ReplicaSet, and what the cluster has
// committed back to their status.
//
// A pass judges the object among its siblings of the same topic (family.go), asks the cluster for what is missing
// (plan.go, act.go), and derives status and events from the committed metadata (status.go, events.go).
package partition

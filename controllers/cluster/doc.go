// Package cluster is the operator's connection to the nodes of one ReplicaSet: the committed metadata as it changes,
// the facts that nodes tell beside it, and the admin calls that change it.
package cluster

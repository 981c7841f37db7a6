// Package controllers has the Kubernetes side of Highwater in packages of its own: specs builds the objects of a
// ReplicaSet, replicaset keeps them in being, partition speaks with the cluster for each Partition, cluster is the
// connection to one cluster's metadata, and report writes status and events.
package controllers

// Command operator is highwater-operator: it runs the ReplicaSets and Partitions of a Kubernetes cluster.
package main

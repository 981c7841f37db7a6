// Package cluster is what the end-to-end programs know of a Kubernetes cluster: typed reads, kubectl, waits that are
// bounded and say what they wait for, and steps that are told as they go.
package cluster

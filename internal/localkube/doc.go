// Package localkube is a Kubernetes cluster on this machine for development and tests: a real etcd and API server,
// and a runtime that plays the rest and runs pods as local processes. docs/local-cluster.md says what it plays.
package localkube

// Package controllermanager plays what kube-scheduler and kube-controller-manager do for the objects that a local
// cluster has: it binds pods to Nodes and claims to volumes, collects garbage, computes the status of
// PodDisruptionBudgets and ends namespaces.
package controllermanager

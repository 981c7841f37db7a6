// Command kubelet installs Highwater with kustomize on a cluster of real kubelets, writes and reads from a pod, and
// then takes pods, nodes and volumes away: everything must come back by itself with every acknowledged record, under
// the restricted PodSecurity profile and the shipped RBAC. `make e2e-kubelet` runs it on a cluster of this machine,
// or on the one that KUBECONFIG names.
package main

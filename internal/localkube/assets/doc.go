// Package assets finds, downloads or builds the control plane that a local cluster runs: a directory with the
// executables etcd, kube-apiserver and kubectl.
package assets

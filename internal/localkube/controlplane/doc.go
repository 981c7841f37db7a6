// Package controlplane runs etcd and kube-apiserver on loopback, with certificates, RBAC and a kubeconfig.
package controlplane

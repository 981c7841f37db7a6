// Package kubelet plays the kubelets of a local cluster: it runs the containers of pods as local processes, with
// probes, restarts, volumes, logs and graceful ends, and keeps the pods' and Nodes' status.
package kubelet

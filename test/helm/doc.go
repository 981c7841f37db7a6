// Command helm tries the chart charts/highwater: lint, its closed schema, what it renders beside what kustomize
// installs, and its life on a cluster of real kubelets: install, upgrade, uninstall, install again. `make helm-test`
// runs it.
package main

// Package config holds the manifests of an installation, for the highwater binary outside of a checkout.
package config

import "embed"

// Manifests are the kustomize files of this directory, without the samples.
//
//go:embed crd rbac manager default
var Manifests embed.FS

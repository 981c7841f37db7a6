// Package specs builds, from a ReplicaSet, every object that the operator makes for it. It is pure: the same input
// gives the same object, and it asks nobody.
package specs

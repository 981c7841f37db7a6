// Package report writes what the operator has to say: conditions, status and events. It writes nothing twice.
package report

// FieldOwner is the name under which the operator applies status.
const FieldOwner = "highwater-operator"

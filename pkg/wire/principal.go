package wire

import "net"

// Principal is who stands behind a connection, as Kafka's KafkaPrincipal.
type Principal struct {
	// Type is "User" for everybody so far.
	Type string
	Name string
}

// Anonymous is the principal of a connection without authentication.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

// String is Kafka's form, as in ACLs.
func (p Principal) String() string { return p.Type + ":" + p.Name }

// Operation is what somebody wants to do, by Kafka's codes (AclOperation).
type Operation int8

// The operations that the router asks for.
const (
	OpRead            Operation = 3
	OpWrite           Operation = 4
	OpCreate          Operation = 5
	OpDelete          Operation = 6
	OpAlter           Operation = 7
	OpDescribe        Operation = 8
	OpClusterAction   Operation = 9
	OpDescribeConfigs Operation = 10
	OpAlterConfigs    Operation = 11
	OpIdempotentWrite Operation = 12
)

// ResourceType is what something is done to, by Kafka's codes (ResourceType).
type ResourceType int8

// The resource types that the router asks for.
const (
	ResourceTopic           ResourceType = 2
	ResourceGroup           ResourceType = 3
	ResourceCluster         ResourceType = 4
	ResourceTransactionalID ResourceType = 5
)

// Resource names one thing. The cluster's name is ClusterName.
type Resource struct {
	Type ResourceType
	Name string
}

// ClusterResource is the cluster itself.
var ClusterResource = Resource{Type: ResourceCluster, Name: "kafka-cluster"}

// Authorizer decides. It is asked on every request, from many goroutines, and must not block.
type Authorizer interface {
	Authorize(Principal, Operation, Resource) bool
}

// AllowAll allows everything to everybody.
type AllowAll struct{}

// Authorize says yes.
func (AllowAll) Authorize(Principal, Operation, Resource) bool { return true }

// PrincipalFunc finds out who is behind a connection that was accepted (and whose TLS handshake, if any, is
// over). An error closes the connection.
type PrincipalFunc func(net.Conn) (Principal, error)

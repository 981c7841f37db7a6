// Package replicaset keeps the nodes of each ReplicaSet in being. It makes what is missing, all at once and without
// asking anybody's leave, and deletes no pod that lives.
package replicaset

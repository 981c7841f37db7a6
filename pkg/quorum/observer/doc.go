// Package observer follows the metadata log of a cluster without a disk, as replica -1: it finds the quorum's
// leader, fetches, and hands each committed step on as images and deltas.
package observer

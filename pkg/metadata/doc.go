// Package metadata has what the metadata log says: Kafka's metadata records as bytes and as structs, the image of
// the cluster that replaying them gives, and the snapshots that an image is written to and read from.
//
// The package is pure: it reads no clock and no file, starts no goroutine, and whatever it emits comes in an order
// that depends on the contents alone. Images are immutable and share structure, so one may be read by anybody
// while deltas make the next one.
package metadata

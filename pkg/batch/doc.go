// Package batch is the record batch of Kafka's format 2: its header as a view of the bytes, its checks, the
// records inside for those few who need them, and a builder for the batches that the engine writes itself.
//
// The hot path never decodes a record: offsets and leader epoch lie outside the checksum by design and are
// rewritten in place.
package batch

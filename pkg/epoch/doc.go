// Package epoch is the table of leader epochs and the offsets at which they start, and the search for the
// offset where two logs part (KIP-101, KIP-279). It is pure: bytes and files are the log's.
package epoch

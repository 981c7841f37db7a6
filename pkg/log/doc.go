// Package log is the log of one partition in one directory, in Apache Kafka's format: segments with offset
// and time indexes, the leader epoch table, the state of idempotent producers, and the small files beside them.
// The metadata log is such a log too.
//
// A Log has one owner that writes, under a lock of its own; Read, StartOffset, EndOffset and FlushedOffset may
// run beside it. What readers see is one immutable view that is replaced with every change. Positions are
// explicit everywhere: no mmap, no file position.
// The files of sealed segments, and their indexes in memory, are there only while they are read (Files).
//
// What a roll, a truncation and retention leave to be done beside renames and writes are chores (Chores), which the
// owner may run without its lock.
//
// What is written is durable once Flush has returned an offset beyond it. A write or sync that fails poisons
// the log: all later writes return that first error, since nothing is known of what the disk holds.
package log

// Package badinput gives real node processes what is wrong: corrupt batches, unknown and oversized requests, damaged
// files, volumes of others. Each must be refused with Kafka's error, repaired with a line in the log, or end the node
// with a message that says what to do.
package badinput

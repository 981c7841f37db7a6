// Command crashlog proves that a log outlives any loss of power: it runs random histories on pkg/log over a disk in
// memory, and before every single change of that disk, and once each step is done, it takes the disk as a crash may
// leave it, starts again from there, and compares what is found with what must be. Some of those disks get flipped
// bits on top. `make crash-log` runs it for minutes, go test for seconds.
//
// A history is one seed: settings, steps and crashes are drawn from it, and so are the crashes of each case from
// the seed and the case's number. A failure prints the one command that plays its case again. With mutants
// (`make crash-log-mutants`) it shows that it is not blind: a sync that is left out, a checksum that is not
// looked at, an order that is turned round.
package main

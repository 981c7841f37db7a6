// Sim plays schedules of faults against the shipping cores and executors (pkg/sim), one on each core, for `make sim` and
// `make sim-mutants`: it counts what happened, plays some twice, and shows a failure as small as it can be made.
package main

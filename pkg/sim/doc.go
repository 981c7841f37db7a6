// Package sim runs the shipping cores and executors in one goroutine under virtual time, over simulated
// disks and a simulated network, and checks the invariants after every step; everything follows from a seed.
package sim

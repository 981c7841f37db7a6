// Package fault puts a TCP proxy before each peer listener, one for each pair of participants, and cuts, delays and
// heals what flows through it.
package fault

// Package procs runs child processes that end when this process does, each in a process group of its own and
// with a pid file through which another process can find it.
package procs

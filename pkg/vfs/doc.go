// Package vfs is the file system as the engine sees it: the real one, one in memory that can lose what was
// not synced, and a wrapper that injects errors.
package vfs

// Package buffer lends byte buffers from pools by size, so that requests and responses cost no allocation of their
// size. Every buffer has a count of owners and goes back when the last one releases it. Tests turn on poisoning: then
// whoever uses a buffer after its release sees garbage, or ends the process.
package buffer

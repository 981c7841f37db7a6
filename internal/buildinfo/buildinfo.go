// Package buildinfo says which build this is.
package buildinfo

// Version is set by the linker (-X); a build without that says "dev".
var Version = "dev"

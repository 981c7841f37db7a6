package main

import "github.com/highwater-io/highwater/pkg/vfs"

type mutantKind string

const (
	markLeftDuringLoad      mutantKind = "mark-left-during-load"
	markBeforeClose         mutantKind = "mark-before-close"
	recoveryPointBeforeSync mutantKind = "recovery-point-before-sync"
)

type mutant struct {
	kind mutantKind
}

func (m *mutant) is(k mutantKind) bool { return m != nil && m.kind == k }

// disk is the disk as a mutant lets it be.
func (m *mutant) disk(mem *vfs.Mem) vfs.FS { return mem }

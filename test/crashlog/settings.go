package main

import (
	"math/rand/v2"

	"github.com/highwater-io/highwater/pkg/log"
)

// settings are drawn once for a history. All of them are small, so that a few dozen steps meet every limit.
type settings struct {
	partitions       int
	segmentBytes     int64
	indexInterval    int64
	indexBytes       int64
	stopOnCorruption bool // as the metadata log
	compact          bool
	choresApart      bool
	segmentMs        int64
	steps            int
	large            int // bytes of the largest value
}

func drawSettings(rng *rand.Rand) *settings {
	s := &settings{
		partitions:       1 + rng.IntN(5)/4,
		segmentBytes:     []int64{600, 1500, 1500, 4000}[rng.IntN(4)],
		indexInterval:    []int64{1, 150, 300, 1000}[rng.IntN(4)],
		indexBytes:       []int64{32, 256, 1 << 20}[rng.IntN(3)],
		stopOnCorruption: rng.IntN(4) == 0,
		steps:            15 + rng.IntN(35),
		large:            []int{60, 300, 700}[rng.IntN(3)],
	}
	s.compact = !s.stopOnCorruption && rng.IntN(3) == 0
	s.choresApart = rng.IntN(2) == 0
	s.segmentMs = []int64{0, 0, 1500, 8000}[rng.IntN(4)]
	return s
}

// log is what a log of these settings is opened with.
func (s *settings) log() log.Settings {
	return log.Settings{SegmentBytes: s.segmentBytes, IndexIntervalBytes: s.indexInterval, IndexBytes: s.indexBytes, SegmentMs: s.segmentMs,
		Compaction: log.Compaction{Enabled: s.compact, DeleteRetentionMs: 1000}}
}

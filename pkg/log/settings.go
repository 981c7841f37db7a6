package log

import (
	"fmt"
	"math"
)

// MinIndexBytes is the smallest Settings.IndexBytes: one entry.
const MinIndexBytes = offsetEntryBytes

// Settings are what may change while a log is open: what the configuration of a topic says. The zero value of
// every field is usable.
type Settings struct {
	// SegmentBytes is the size beyond which the next append starts a new segment; 0 is 1 GiB (segment.bytes).
	SegmentBytes int64
	// SegmentMs is the age beyond which the next append starts a new segment: the timestamp of what is appended
	// against that of the segment's first batch. Where that one has none, Config.WallMillis says how long the segment
	// has been open. 0 is no limit (segment.ms).
	SegmentMs int64
	// SegmentJitterMs is how much sooner than SegmentMs that may be: segments draw from it, so that logs which were
	// begun together do not all roll at once (segment.jitter.ms).
	SegmentJitterMs int64
	// IndexIntervalBytes is how much log lies between two index entries; 0 is 4096 (index.interval.bytes). A change
	// counts from the next segment on.
	IndexIntervalBytes int64
	// IndexBytes bounds the offset index of a segment; 0 is 10 MiB (segment.index.bytes).
	IndexBytes int64
	// Compaction is off in the zero value.
	Compaction Compaction
	// LogAppendTime gives records the time at which the leader appends them, by Config.WallMillis, instead of the
	// producer's (message.timestamp.type).
	LogAppendTime bool
}

func (s Settings) withDefaults() (Settings, error) {
	setDefault(&s.SegmentBytes, 1<<30)
	setDefault(&s.IndexIntervalBytes, 4096)
	setDefault(&s.IndexBytes, 10<<20)
	switch {
	case s.SegmentBytes < 0 || s.SegmentBytes > math.MaxInt32:
		return s, fmt.Errorf("segment size of %d bytes: want 1 to %d", s.SegmentBytes, math.MaxInt32)
	case s.SegmentMs < 0 || s.SegmentJitterMs < 0:
		return s, fmt.Errorf("segment age %d ms, jitter %d ms: want 0 or more", s.SegmentMs, s.SegmentJitterMs)
	case s.IndexIntervalBytes < 0 || s.IndexBytes < MinIndexBytes:
		return s, fmt.Errorf("index interval %d, index size %d: want positive", s.IndexIntervalBytes, s.IndexBytes)
	}
	return s, s.Compaction.validate()
}

func setDefault(v *int64, to int64) {
	if *v == 0 {
		*v = to
	}
}

// StampsAppends says whether appends get the leader's time.
func (l *Log) StampsAppends() bool { return l.cfg.LogAppendTime }

// Settings are those in force. They belong to the owner.
func (l *Log) Settings() Settings { return l.cfg.Settings }

// Compacted says whether the log is compacted, so that every record needs a key. It belongs to the owner.
func (l *Log) Compacted() bool { return l.cfg.Compaction.Enabled }

// SetSettings replaces the settings for what is to come. One that is out of range is an error and changes nothing.
func (l *Log) SetSettings(s Settings) error {
	s, err := s.withDefaults()
	if err == nil {
		l.cfg.Settings = s
	}
	return err
}

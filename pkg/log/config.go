package log

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

var (
	// ErrOffsetOutOfRange says that an offset is below the log start or beyond its end. Kafka:
	// OFFSET_OUT_OF_RANGE (1).
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrCorrupt says that records which must be there and whole are not. Kafka: KAFKA_STORAGE_ERROR (56).
	ErrCorrupt = errors.New("log is corrupt")
	// ErrNotContiguous says that the batches of a follower don't continue its log; nothing was appended.
	ErrNotContiguous = errors.New("batches do not continue the log")
	// ErrTooLarge says that an append does not fit in one segment. Kafka: RECORD_LIST_TOO_LARGE (18).
	ErrTooLarge = errors.New("append is larger than a segment can be")
	// ErrClosed says that the log was closed.
	ErrClosed = errors.New("log is closed")
)

// Config of one log. The zero value of every field is usable.
type Config struct {
	Settings

	// ProducerExpirationMs is how long an idle producer is remembered; 0 is a day (producer.id.expiration.ms).
	ProducerExpirationMs int64

	// WallMillis is the calendar's time in ms since 1970, for what can't go by the records' own timestamps; nil when
	// that is not wanted.
	WallMillis func() int64

	// Files holds the open files of sealed segments, for all logs that share it; nil is one of the log's own.
	Files *Files

	// ChoresApart says that the owner runs the chores (BeginChores); else every call does those that it leaves.
	ChoresApart bool

	// StartOffset is the log start that was last known, from log-start-offset-checkpoint, which has what
	// DurableStartOffset said. The log begins there or at its first segment, whichever is later; where the files show
	// that it can't be right, the log begins where they say. An empty directory begins there.
	StartOffset ident.Offset
	// RecoveryPoint is the offset up to which the log was flushed, from recovery-point-offset-checkpoint. What
	// lies below it in whole segments is not scanned after a crash.
	RecoveryPoint ident.Offset
	// CleanOffset is the offset up to which the log was compacted, from cleaner-offset-checkpoint. 0 is right for
	// every log: it is then compacted from its start.
	CleanOffset ident.Offset
	// LowerCheckpoints, unless nil, makes sure durably that no recovery point and no cleaner's offset above the one
	// offset and no log start above the other is written down for this log. The log calls it before it is truncated,
	// for after a crash a higher recovery point would call damaged what is torn of the records that come next, a higher
	// start would hide them, and a higher cleaner's offset would call them compacted; and where what was written down
	// proves wrong.
	LowerCheckpoints func(recoveryPoint, logStart ident.Offset) error
	// CleanShutdown says that the directory's mark of a clean shutdown was found: nothing is scanned.
	CleanShutdown bool
	// Progress is told while a log is recovered of the bytes that were read since the last time. An error that it
	// returns ends Open with it; the records stay as they were found. Nil asks for nothing.
	Progress func(bytes int64) error
	// StopOnCorruption makes Open fail with ErrCorrupt when what is wrong can't be a write that was torn by a
	// crash, instead of cutting the log there, and refuse gaps between batches. For the metadata log, where a vote
	// rests on what was flushed, and which is never compacted.
	StopOnCorruption bool
	// ServeDamaged breaks a rule on purpose, for the tests of the tests: Read looks at no damage.
	ServeDamaged bool
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.Settings, err = c.Settings.withDefaults(); err != nil {
		return c, err
	}
	setDefault(&c.ProducerExpirationMs, 24*60*60*1000)
	if c.Files == nil {
		c.Files = NewFiles(defaultOpenFiles, defaultIndexBytes)
	}
	if c.StartOffset < 0 || c.RecoveryPoint < 0 || c.CleanOffset < 0 {
		return c, fmt.Errorf("start offset %d, recovery point %d, clean offset %d: want 0 or more", c.StartOffset, c.RecoveryPoint, c.CleanOffset)
	}
	return c, nil
}

// Recovery says what Open found and repaired. Its zero value is: nothing was wrong.
type Recovery struct {
	// Scanned is how many bytes of batches were read and checked.
	Scanned int64
	// CutBytes were removed from the end, behind CutAt: a write that a crash tore.
	CutBytes int64
	CutAt    ident.Offset
	// RemovedSegments are base offsets of segments that were removed whole with what was cut.
	RemovedSegments []ident.Offset
	// RebuiltIndexes are base offsets of segments whose indexes were missing or wrong.
	RebuiltIndexes []ident.Offset
	// Repairs tells all of it in words, for the node's log.
	Repairs []string
}

// Repaired says whether anything was wrong.
func (r Recovery) Repaired() bool { return len(r.Repairs) > 0 }

func (r *Recovery) note(format string, args ...any) {
	r.Repairs = append(r.Repairs, fmt.Sprintf(format, args...))
}

package batch

import (
	"errors"
	"fmt"
	"sync"
)

// ErrNoKey says that a record has no key where one is needed: in a compacted topic. Kafka: INVALID_RECORD (87).
var ErrNoKey = errors.New("a record of a compacted topic needs a key")

var rewriters = sync.Pool{New: func() any { return new(Rewriter) }}

// CheckKeyed says whether every record of a whole batch has a key. Errors wrap ErrInvalid, and ErrNoKey where that is
// what is wrong; a batch whose checksum is wrong besides was damaged on the way and gets VerifyCRC's error.
func CheckKeyed(batch []byte, h Header) error {
	w := rewriters.Get().(*Rewriter)
	defer rewriters.Put(w)
	err := w.Walk(batch, h, needKey)
	if err == nil {
		return nil
	}
	if damaged := VerifyCRC(batch, h); damaged != nil {
		return damaged
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

func needKey(r *RecordView) error {
	if r.Key == nil {
		return fmt.Errorf("%w: record at offset delta %d has none", ErrNoKey, r.Offset)
	}
	return nil
}

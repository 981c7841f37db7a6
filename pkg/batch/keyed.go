package batch

import (
	"errors"
	"fmt"
	"sync"
)

// ErrNoKey says that a record has no key where one is needed: in a compacted topic. Kafka: INVALID_RECORD (87).
var ErrNoKey = errors.New("a record of a compacted topic needs a key")

var rewriters = sync.Pool{New: func() any { return new(Rewriter) }}

// CheckKeyed says whether every record of a whole batch has a key. Errors wrap ErrNoKey, or ErrCorrupt when the
// records can't be decoded.
func CheckKeyed(batch []byte, h Header) error {
	w := rewriters.Get().(*Rewriter)
	defer rewriters.Put(w)
	return w.Walk(batch, h, needKey)
}

func needKey(r *RecordView) error {
	if r.Key == nil {
		return fmt.Errorf("%w: record at offset delta %d has none", ErrNoKey, r.Offset)
	}
	return nil
}

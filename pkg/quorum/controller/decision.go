package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// A Decision is the outcome of a request or of the passing of time.
type Decision struct {
	// Records are to be appended as one batch whose first offset is Offset, or not at all: when the log ends
	// elsewhere by now, or the append fails, LoseAppends is due. They may be none.
	Records []metadata.Record
	Offset  ident.Offset

	// Response is for the request that was decided; nil when time was what passed. It may be sent as soon as
	// everything below CommitOffset is committed: also one without records, and a refusal, rests on what earlier
	// decisions appended. When the leadership ends before, the answer is NOT_CONTROLLER.
	Response     kmsg.Response
	CommitOffset ident.Offset

	// Image is the appended image with Records. It goes to LoseAppends when a later decision's append is lost.
	Image *metadata.Image

	// Reason says in a few words what happened to a broker or a leader, for the node's log; often empty.
	Reason string
}

// A tx gathers the records of one decision and lets each step see what those before it did.
type tx struct {
	c       *Controller
	view    state
	records []metadata.Record
	applied int // records[:applied] are in view
	bytes   int
	err     error // the first record that can't be encoded: a string of the request is too long
}

func (c *Controller) begin() *tx { return &tx{c: c, view: c.appended} }

// add appends records. What they say is seen by the next call of state.
func (t *tx) add(records ...metadata.Record) {
	t.view.image.Level().Stamp(records...)
	for _, r := range records {
		b, err := metadata.TryEncode(t.c.scratch[:0], r)
		if err != nil && t.err == nil {
			t.err = err
		}
		t.c.scratch = b
		t.bytes += len(b) + recordOverhead
	}
	t.records = append(t.records, records...)
}

// recordOverhead is what a batch spends on a record besides its value, at most: length, attributes, deltas, key,
// header count.
const recordOverhead = 32

// room says whether another partition change surely fits, and after it what else a decision may have to say, such
// as a registration. Work that the controller does of itself is done in as many decisions as it takes (KAFKA-14204).
func (t *tx) room() bool {
	return len(t.records)+spareRecords <= t.c.cfg.MaxRecords && t.bytes+spareBytes <= t.c.cfg.MaxBytes
}

const (
	spareRecords = 8
	spareBytes   = 32 << 10
	// maxRegistration is how large a registration may be: well within the room that is kept for it.
	maxRegistration = 16 << 10
)

// nextOffset is where the next record that is added will stand.
func (t *tx) nextOffset() ident.Offset { return t.c.nextOffset + ident.Offset(len(t.records)) }

// state returns the appended image with all that was added.
func (t *tx) state() *state {
	if t.applied < len(t.records) {
		t.view = t.view.with(t.records[t.applied:], t.nextOffset()-1, t.c.epoch)
		t.applied = len(t.records)
	}
	return &t.view
}

// fits says whether the records can be encoded, in no more than that many bytes. It adds them.
func (t *tx) fits(limit int, records ...metadata.Record) bool {
	before := t.bytes
	t.add(records...)
	return t.err == nil && t.bytes-before <= limit
}

// withinLimits says whether the records still fit one batch.
func (t *tx) withinLimits() bool {
	return len(t.records) <= t.c.cfg.MaxRecords && t.bytes <= t.c.cfg.MaxBytes
}

// refused says why the decision may not be appended, for a request that is answered as a whole; nil when it may.
func (t *tx) refused() (*kerr.Error, string) {
	switch {
	case t.err != nil:
		return kerr.InvalidRequest, t.err.Error()
	case !t.withinLimits():
		// Kafka's words and code (KAFKA-14204). A batch that the log can't take must never reach it.
		return kerr.PolicyViolation, fmt.Sprintf("Unable to perform excessively large batch operation: it takes %d records of %d bytes, the limits are %d records and %d bytes.",
			len(t.records), t.bytes, t.c.cfg.MaxRecords, t.c.cfg.MaxBytes)
	}
	return nil, ""
}

// commit makes the gathered records the appended state and returns the decision. What can be too large has asked
// refused before.
func (t *tx) commit(response kmsg.Response) Decision {
	c := t.c
	if code, why := t.refused(); code != nil {
		panic(fmt.Sprintf("controller: a decision of %d records at offset %d passed its checks and can't be appended: %s", len(t.records), c.nextOffset, why))
	}
	d := Decision{Records: t.records, Offset: c.nextOffset, Response: response}
	c.appended = *t.state()
	if len(t.records) > 0 {
		c.nextOffset = t.nextOffset()
		c.lastRecord = c.now
	}
	d.CommitOffset, d.Image = c.nextOffset, c.appended.image
	return d
}

// answer is a decision without records.
func (c *Controller) answer(response kmsg.Response) Decision {
	return Decision{Offset: c.nextOffset, Response: response, CommitOffset: c.nextOffset, Image: c.appended.image}
}

// notController is the answer of a controller that is not active. Nothing needs to be committed before it is sent.
func notController(response kmsg.Response) Decision {
	return Decision{Response: response}
}

func text(format string, args ...any) *string {
	s := fmt.Sprintf(format, args...)
	return &s
}

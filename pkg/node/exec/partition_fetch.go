package exec

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// Fetch is a read of one partition, by a follower or a consumer.
type Fetch struct {
	replication.Fetch
	MaxBytes int
	// MinOne: hand out one whole batch even when it is larger than MaxBytes, as the first partition of a fetch
	// that has data does (KIP-74).
	MinOne bool
}

// FetchResult answers a Fetch. The caller releases Records, which is empty unless Code is None and nothing diverges.
type FetchResult struct {
	replication.FetchAnswer
	Records log.Chunk
}

// Fetch answers at once. When that is too little, the caller may Park the fetch and evaluate it again (with Again
// set) after Output.Wake has named its token.
func (p *Partition) Fetch(now ident.Instant, f Fetch) FetchResult {
	p.step(now, f.Fetch)
	res := FetchResult{FetchAnswer: p.answer}
	if res.Code != replication.None || res.Diverging != replication.NoEpochEnd || res.From >= res.Below || f.MaxBytes <= 0 && !f.MinOne {
		return res
	}
	chunk, err := p.log.Read(res.From, f.MaxBytes, res.Below, f.MinOne)
	if err != nil {
		if !p.suspect(err) {
			p.step(now, p.fail("read", err))
		}
		return FetchResult{FetchAnswer: replication.FetchAnswer{
			Token: f.Token, Code: replication.KafkaStorageError, From: f.Offset, Below: f.Offset,
			HighWatermark: ident.UnknownOffset, LogStart: ident.UnknownOffset, Diverging: replication.NoEpochEnd,
		}}
	}
	res.Records = chunk
	return res
}

// Park keeps a fetch that was answered up to seen (FetchAnswer.Below) until there is more or until the deadline. If
// there is more already, Output.Wake has it at once.
func (p *Partition) Park(now ident.Instant, f Fetch, seen ident.Offset, deadline ident.Instant) {
	p.step(now, replication.ParkFetch{Fetch: f.Fetch, Seen: seen, Deadline: deadline})
}

// Unpark forgets a parked fetch: its connection is gone, or another partition of it had enough.
func (p *Partition) Unpark(now ident.Instant, token replication.Token) {
	p.step(now, replication.UnparkFetch{Token: token})
}

// NextFetch is the question for this replica's leader, when it has one. It stays the same until its answer is
// handed to HandleFetchResponse or metadata changes: whoever sends it remembers that it is under way.
func (p *Partition) NextFetch() (replication.FetchPosition, bool) { return p.core.NextFetch() }

// FetchResponse is the leader's answer to Asked.
type FetchResponse struct {
	Asked          replication.FetchPosition
	Code           replication.Code // NetworkException when there was none
	HighWatermark  ident.Offset
	LeaderLogStart ident.Offset
	Diverging      replication.EpochEnd // NoEpochEnd when the logs agree
	Records        []byte
}

// HandleFetchResponse appends, truncates, or backs off. The bytes are the caller's again after the call.
func (p *Partition) HandleFetchResponse(now ident.Instant, r FetchResponse) {
	ev := replication.FetchResponse{
		LeaderEpoch: r.Asked.LeaderEpoch, Offset: r.Asked.Offset, LastFetchedEpoch: r.Asked.LastFetchedEpoch,
		Code: r.Code, HighWatermark: r.HighWatermark, LeaderLogStart: r.LeaderLogStart, Diverging: r.Diverging,
	}
	p.fetched, p.batches = p.fetched[:0], p.batches[:0]
	for rest := r.Records; len(rest) > 0; {
		one, next, h, err := batch.Next(rest)
		if err != nil { // a tail that is not whole is how a bounded read ends; anything else the log refuses below
			if !errors.Is(err, batch.ErrTruncated) && len(p.fetched) == 0 {
				ev.Code = CorruptMessage
			}
			break
		}
		p.fetched = append(p.fetched, one)
		p.batches = append(p.batches, replication.Batch{Base: h.BaseOffset, End: h.NextOffset(), Epoch: h.LeaderEpoch})
		rest = next
	}
	ev.Batches = p.batches // the core keeps none of them
	p.response = r.Records
	p.step(now, ev)
	p.response = nil
	clear(p.fetched)
}

// EpochEnd answers OffsetForLeaderEpoch.
func (p *Partition) EpochEnd(leaderEpoch, asked ident.Epoch) (replication.EpochEnd, replication.Code) {
	return p.core.EpochEnd(leaderEpoch, asked)
}

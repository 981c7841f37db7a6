package exec

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// append writes the records of the produce that the core has just accepted.
func (p *Partition) append(token replication.Token) replication.Event {
	if p.failure != nil {
		return replication.AppendFailed{Token: token, Code: replication.KafkaStorageError}
	}
	info, err := p.log.AppendAsLeader(p.records, p.core.LeaderEpoch())
	if err == nil {
		if info.LogAppendTime >= 0 {
			p.stamps[token] = info.LogAppendTime
		}
		return replication.AppendDone{Token: token, Base: info.First, End: info.End()}
	}
	code := appendCode(err)
	if code == replication.KafkaStorageError {
		p.do("append", err)
	}
	p.appendErr = err.Error()
	return replication.AppendFailed{Token: token, Code: code}
}

// appendCode is Kafka's code for a refused append; KafkaStorageError for everything that is not about the records.
func appendCode(err error) replication.Code {
	switch {
	case errors.Is(err, log.ErrOutOfOrderSequence):
		return OutOfOrderSequenceNumber
	case errors.Is(err, log.ErrProducerFenced):
		return InvalidProducerEpoch
	case errors.Is(err, log.ErrTooLarge):
		return RecordListTooLarge
	case errors.Is(err, batch.ErrCorrupt), errors.Is(err, batch.ErrTruncated):
		return CorruptMessage
	}
	return replication.KafkaStorageError
}

// appendFetched writes the first n batches of the response that is being used.
func (p *Partition) appendFetched(n int) replication.Event {
	if p.failure != nil {
		return replication.FetchedRefused{}
	}
	_, err := p.log.AppendAsFollower(p.leading(n))
	switch {
	case err == nil:
		return replication.FetchedAppended{}
	case errors.Is(err, log.ErrNotContiguous), errors.Is(err, log.ErrTooLarge),
		errors.Is(err, batch.ErrCorrupt), errors.Is(err, batch.ErrTruncated):
		p.outputs.Refused = err // what came over the network is at fault, not the disk
		return replication.FetchedRefused{}
	}
	p.do("append", err)
	return replication.FetchedRefused{}
}

// leading is the bytes of the first n fetched batches.
func (p *Partition) leading(n int) []byte {
	size := 0
	for _, b := range p.fetched[:n] {
		size += len(b)
	}
	return p.response[:size]
}

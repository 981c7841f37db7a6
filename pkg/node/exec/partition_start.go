package exec

import (
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
)

// noteLogStart tells the caller where the log's start may be written down by now, and which deletions may be told of
// then: the start is not written down before a flush has covered it, see log.DurableStartOffset, and a crash would bring
// back what was deleted.
func (p *Partition) noteLogStart() {
	durable := p.log.DurableStartOffset()
	if durable != p.start {
		p.start = durable
		p.outputs.LogStart = true
	}
	waiting := p.deleted[:0]
	for _, d := range p.deleted {
		switch {
		case d.Code != replication.None || d.LowWatermark <= durable:
		case p.failure != nil:
			d.Code, d.LowWatermark = replication.KafkaStorageError, ident.UnknownOffset
		case p.closed:
			d.Code, d.LowWatermark = replication.NotLeaderOrFollower, ident.UnknownOffset
		default:
			waiting = append(waiting, d)
			continue
		}
		p.outputs.Deleted = append(p.outputs.Deleted, d)
	}
	p.deleted = waiting
}

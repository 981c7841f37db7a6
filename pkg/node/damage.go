package node

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// damageNews is what drain found about damaged records of a replica.
type damageNews struct {
	damage      []log.Damage
	quarantined *log.Quarantined
	refilled    *exec.Refilled
}

// tellDamage says to people and to the operator what has happened to a replica's records.
func (b *broker) tellDamage(r *replica, news damageNews) {
	fact := func(kind string, from, to ident.Offset, message string) {
		b.facts.add(nodefact.Fact{
			Kind: kind, Time: time.Now().UTC(), TopicID: r.id.Topic, Topic: r.topic, Index: r.id.Index,
			Replica: b.cfg.NodeID, From: from, To: to, Message: message,
		})
	}
	if len(news.damage) == 0 && news.quarantined == nil && news.refilled == nil {
		return
	}
	logger := b.logger.With("topic", r.topic, "index", r.id.Index, "dir", r.dir)
	for _, d := range news.damage {
		logger.Error("records are damaged and are not served; the replica leaves the ISR and fetches them again, "+
			"or, when no other replica is in sync, serves the rest", "from", d.From, "to", d.To, "error", d.Err)
		fact(nodefact.ReplicaDamaged, d.From, d.To, d.String())
	}
	if q := news.quarantined; q != nil {
		logger.Warn("damaged segments and all later ones were renamed to *.quarantine, the replica fetches them from its leader; "+
			"they are deleted when it has", "from", q.From, "to", q.To, "segments", len(q.Segments), "bytes", q.Bytes)
	}
	if q := news.refilled; q != nil {
		logger.Info("the replica has again what was damaged; its quarantined segments are deleted", "from", q.From, "to", q.To, "bytes", q.Bytes)
		fact(nodefact.ReplicaRefilled, q.From, q.To, fmt.Sprintf("offsets %d to %d were fetched from the leader again", q.From, q.To-1))
	}
}

// lostReplicas are those that have reported damaged records.
func lostReplicas(p *metadata.Partition) (lost []ident.NodeID) {
	for i, dir := range p.Directories {
		if dir == ident.LostDirectory {
			lost = append(lost, p.Replicas[i])
		}
	}
	return lost
}

// suspect has the segment checked that an error of a look-up beside the executor names.
func (r *replica) suspect(err error) {
	r.do(func(_ ident.Instant, p *exec.Partition) { p.Suspect(err) })
}

// Package replication decides what one replica of a partition does, as leader and as follower: who is in sync, how
// far the high watermark may go, which produce is acknowledged, what a fetch may read, where a follower truncates.
//
// A [Replica] is a plain state machine. [Replica.Step] takes the time and one event and writes what is to be done
// into a caller-owned [Effects]; [Replica.NextDeadline] says when it wants an [Tick] at the latest. There is no
// goroutine, clock, file, socket or record byte in here: an executor (pkg/node/exec) appends, truncates and flushes
// and reports back with a completion event, and the positions of the log are read through [LogView].
//
// The rules are Kafka's as it has them since KIP-841 and KIP-966, with these differences, each on the safe side:
// a follower joins the in-sync replicas only when it keeps pace with the moving log end (Kafka asks for the high
// watermark alone); a fetch must carry exactly the broker epoch that metadata has for its sender to be eligible (an
// unknown one is not); every new leader epoch forgets the followers' positions, also on re-election, since another
// leader may have been in between; a follower's high watermark goes down only by truncation; what a follower holds of
// an epoch that the leader's log has nothing of any more can't be compared and is dropped (Kafka keeps it); an answer
// is used only if offset, leader epoch and last fetched epoch are still those of the question; a leader that stood
// still hears its followers before it calls them laggards; a follower whose leader has not heard yet that it leads asks
// again soon.
//
// One thing the core can't see to: a proposal is retried unchanged after an unclear answer, and a later refusal of the
// retry is taken as "not applied". So the copies must reach the controller in order: one request in flight per node,
// over one connection, and another connection only when the old one is closed.
package replication

package replication

// Mutant names a rule that a Replica breaks on purpose. The simulator's own tests set one to see that it is caught;
// its zero value, the only one outside tests, breaks none.
type Mutant uint8

// Mutants, each the bug of some system.
const (
	NoMutant                 Mutant = iota
	MinimalISR                      // high watermark over the committed ISR without what a pending proposal adds
	TruncateToHighWatermark         // a new follower cuts its log at the high watermark and compares no epochs
	StaleBrokerEpochAccepted        // broker epochs of fetches and proposals are not looked at
	ExpandOnHighWatermark           // joining asks only for the high watermark (KAFKA-7128)
	UnclearAnswerIsRefusal          // any error of an AlterPartition counts as "not applied"
	AckOnAppend                     // acks=all is answered when the leader has appended (redpanda#6018)
	StaleResponseUsed               // a fetch response of another epoch or position is used
	DivergenceIgnored               // DivergingEpoch is not followed
	QuarantineInISR                 // damaged records have the log cut while the replica is in the ISR
	DamageServed                    // what follows known damage is served in its place, without a word (the log's part)
	RejoinDamaged                   // a replica says that it is whole though its records are damaged
	LatestBeforeEpochStart          // ListOffsets answers before the high watermark has reached the epoch's start
	AckBeforeFlush                  // flush: Always, but the leader counts what it has only appended
	FetchBeforeFlush                // flush: Always, but a follower fetches on from what it has only appended
	FlushSwitchIgnored              // flush: Always switched on has no effect
)

package exec

import (
	"errors"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/replication"
)

// Codes about records, beside those that the core knows.
const (
	CorruptMessage             replication.Code = 2
	MessageTooLarge            replication.Code = 10
	RecordListTooLarge         replication.Code = 18
	InvalidTimestamp           replication.Code = 32
	OutOfOrderSequenceNumber   replication.Code = 45
	DuplicateSequenceNumber    replication.Code = 46
	InvalidProducerEpoch       replication.Code = 47
	UnsupportedCompressionType replication.Code = 76
	InvalidRecord              replication.Code = 87
)

// batchCode is Kafka's code for what a client may not write. Kafka reads what is cut off as no batch at all, and what
// has an older magic as one that this version of Produce may not carry (ProduceRequest.validateRecords).
func batchCode(err error) replication.Code {
	switch {
	case errors.Is(err, batch.ErrInvalid), errors.Is(err, batch.ErrTruncated), errors.Is(err, batch.ErrOldMagic):
		return InvalidRecord
	case errors.Is(err, batch.ErrCompression):
		return UnsupportedCompressionType
	}
	return CorruptMessage
}

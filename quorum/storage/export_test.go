package storage

import "github.com/kraft-operator/kraft-operator/quorum/raft"

// The codecs of the small files, for tests that compare bytes with Kafka's.
var (
	EncodeQuorumState = encodeQuorumState
	PlainQuorumState  = plainQuorumState
	DecodeQuorumState = decodeQuorumState
	EncodeEpochs      = encodeEpochs
	DecodeEpochs      = decodeEpochs
	EncodePartition   = encodePartition
	DecodePartition   = decodePartition
	EncodeMeta        = encodeMeta
	DecodeMeta        = decodeMeta
	DecodeCommitted   = decodeCommitted
)

// EncodeCommitted makes the file committed.
func EncodeCommitted(offset int64, epoch raft.Epoch) []byte {
	return encodeCommitted(raft.OffsetAndEpoch{Offset: offset, Epoch: epoch})
}

package storage

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
)

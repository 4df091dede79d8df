package wire

import (
	"fmt"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

var errorNames = map[raft.ErrorCode]string{
	raft.UnknownServerError: "UNKNOWN_SERVER_ERROR", raft.NoError: "NONE", raft.OffsetOutOfRange: "OFFSET_OUT_OF_RANGE",
	raft.CorruptMessage: "CORRUPT_MESSAGE", raft.UnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	LeaderNotAvailable: "LEADER_NOT_AVAILABLE", raft.NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER",
	raft.RequestTimedOut: "REQUEST_TIMED_OUT", raft.BrokerNotAvailable: "BROKER_NOT_AVAILABLE",
	CoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE", raft.RecordBatchTooLarge: "MESSAGE_TOO_LARGE",
	raft.ClusterAuthorization: "CLUSTER_AUTHORIZATION_FAILED", raft.UnsupportedVersion: "UNSUPPORTED_VERSION",
	raft.NotController: "NOT_CONTROLLER", raft.InvalidRequest: "INVALID_REQUEST",
	raft.OutOfOrderSequence: "OUT_OF_ORDER_SEQUENCE_NUMBER", raft.InvalidProducerEpoch: "INVALID_PRODUCER_EPOCH",
	raft.KafkaStorageError: "KAFKA_STORAGE_ERROR", raft.UnknownProducerID: "UNKNOWN_PRODUCER_ID",
	FetchSessionNotFound: "FETCH_SESSION_ID_NOT_FOUND", raft.FencedLeaderEpoch: "FENCED_LEADER_EPOCH",
	raft.UnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH", raft.OffsetNotAvailable: "OFFSET_NOT_AVAILABLE",
	raft.InvalidRecord: "INVALID_RECORD", raft.ThrottlingQuotaExceeded: "THROTTLING_QUOTA_EXCEEDED",
	raft.InvalidUpdateVersion: "INVALID_UPDATE_VERSION",
	raft.SnapshotNotFound:     "SNAPSHOT_NOT_FOUND", raft.PositionOutOfRange: "POSITION_OUT_OF_RANGE",
	raft.UnknownTopicID: "UNKNOWN_TOPIC_ID", raft.InconsistentClusterID: "INCONSISTENT_CLUSTER_ID",
	MismatchedEndpointType: "MISMATCHED_ENDPOINT_TYPE", UnsupportedEndpointType: "UNSUPPORTED_ENDPOINT_TYPE",
	raft.InvalidVoterKey: "INVALID_VOTER_KEY", raft.DuplicateVoter: "DUPLICATE_VOTER", raft.VoterNotFound: "VOTER_NOT_FOUND",
}

// ErrorName is Kafka's name of an error code.
func ErrorName(code raft.ErrorCode) string {
	if name, ok := errorNames[code]; ok {
		return name
	}
	return fmt.Sprintf("error %d", code)
}

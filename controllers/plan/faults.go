package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// tokens are the words with which a member's process ends on a fault (docs of package quorum/server). A closed list: any
// other image may end with any word, and none of them may look like a reason of ours.
var tokens = []string{
	"CLUSTER_ID_MISMATCH", "CONFIG_INVALID", "DIRECTORY_ID_MISMATCH", "DIR_LOCKED", "DISK_FULL", "DISK_IO_ERROR",
	"INCONSISTENT_STATE", "LISTEN_FAILED", "LOG_CORRUPT", "NODE_ID_MISMATCH", "NOT_AUTHORIZED", "NOT_FORMATTED",
	"NOT_WRITABLE", "PORT_IN_USE", "SNAPSHOT_MISSING", "STATE_FILE_CORRUPT", "TOPIC_ID_MISMATCH", "TOPIC_NAME_MISMATCH",
	"TRUNCATION_BELOW_HW", "UNKNOWN_RECORD",
}

// tokenReason is a token as a condition reason, LOG_CORRUPT as LogCorrupt; "" for a word that is none of ours.
func tokenReason(token string) string {
	if !slices.Contains(tokens, token) {
		return ""
	}
	var reason strings.Builder
	for word := range strings.SplitSeq(token, "_") {
		switch word {
		case "ID", "IO", "HW":
			reason.WriteString(word)
		default:
			reason.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return reason.String()
}

// belowReserve is what a member without room is said to be.
const belowReserve = "its disk has less free space than its reserve, so it appends nothing"

// fault is what keeps a member from storing records, by its own word: as a condition reason, and as text. Empty: it has
// told of none.
func (o Observation) fault(p *Pod) (reason, text string) {
	switch {
	case p == nil:
		return "", ""
	case !p.Running:
		if reason := tokenReason(p.Token); reason != "" {
			return reason, p.Token
		}
	case o.View != nil && slices.Contains(o.View.BelowReserve, p.NodeID):
		return v1alpha1.ReasonDiskFull, belowReserve
	}
	return "", ""
}

// Fault is what keeps a member from storing records, by its own word; "" if it has told of nothing.
func Fault(o Observation, nodeID int32) string {
	_, text := o.fault(o.pod(nodeID))
	return text
}

// trouble is why a Pod isn't well: by its process's own word if there is one, else by the kubelet's or the scheduler's.
// The text is empty if nobody has said anything.
func (o Observation) trouble(p *Pod) (reason, text string) {
	if p.Ready {
		return "", ""
	}
	if reason, text := o.fault(p); reason != "" {
		return reason, text
	}
	if p.Token != "" && !p.Running {
		return v1alpha1.ReasonMemberNotReady, p.Token
	}
	return v1alpha1.ReasonMemberNotReady, p.Problem
}

// majorityLost: too few voters have the disk that the voter set knows for the quorum ever to come back by itself. Claims
// that are missing before the seal are not made yet.
func majorityLost(o Observation) Refusal {
	if !o.Identity.Sealed {
		return Refusal{}
	}
	vs, kept := voters(o), 0
	for _, m := range vs {
		if m.claim != nil && !m.claim.Deleting && !o.emptied(m.id) {
			kept++
		}
	}
	need := len(vs)/2 + 1
	if kept >= need {
		return Refusal{}
	}
	return Refusal{
		Reason: v1alpha1.ReasonMajorityLost, Stalled: true,
		Message: fmt.Sprintf("%d of %d voters have their disks, %d needed: a majority of disks is gone; nothing is done without a person", kept, len(vs), need),
	}
}

func (o Observation) emptied(id int32) bool {
	return o.View != nil && slices.Contains(o.View.Emptied, id)
}

// NoMajority is why no majority of voters can append, as far as it lies with them and not with an election: disks that are
// gone, faults that they tell of, or Pods that don't run. The zero value: one can.
func NoMajority(o Observation) Refusal {
	vs, able := voters(o), 0
	reason := ""
	var faults []string
	for _, m := range vs {
		why, text := o.fault(m.pod)
		switch {
		case why != "":
			reason = cmp.Or(reason, why)
			faults = append(faults, fmt.Sprintf("voter %d: %s", m.id, text))
		case m.pod != nil && m.pod.Running && !o.emptied(m.id):
			able++
		}
	}
	need := len(vs)/2 + 1
	if able >= need {
		return Refusal{}
	}
	if lost := majorityLost(o); lost.Reason != "" {
		return lost
	}
	message := fmt.Sprintf("%d of %d voters run and can append, %d needed", able, len(vs), need)
	if able+len(faults) >= need { // they are the cause: without them there would be a majority
		return Refusal{Reason: reason, Message: message + "; " + strings.Join(faults, "; ")}
	}
	return Refusal{Reason: v1alpha1.ReasonNoMajorityReady, Message: message}
}

package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// IdentityName is the ConfigMap that holds the identity record.
func IdentityName(quorum string) string { return quorum + "-identity" }

// PodName is the Pod, and host name, of a member.
func PodName(quorum string, nodeID int32) string { return fmt.Sprintf("%s-%d", quorum, nodeID) }

// FormatPodName is the one-shot Pod that formats a member's claim.
func FormatPodName(quorum string, nodeID int32) string {
	return fmt.Sprintf("%s-%d-format", quorum, nodeID)
}

// claimName is the count-th claim of a member. It's derived, never random: a pass that is repeated on facts that have
// not yet caught up asks for the same object again, not for a second one.
func claimName(quorum string, uid types.UID, nodeID int32, count int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/claim/%d/%d", uid, nodeID, count))
	return fmt.Sprintf("%s-%d-%s", quorum, nodeID, hex.EncodeToString(sum[:4]))
}

// deriveUUID makes a cluster or directory id of the resource's UID, in Kafka's form. The UID is random, hence so is
// the id; and a pass that is repeated makes the same one. Ids that begin with '-' are skipped, as Kafka does: command
// lines take them for options.
func deriveUUID(uid types.UID, what string) string {
	for try := 0; ; try++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, what, try))
		id := sum[:16]
		id[6] = id[6]&0x0f | 0x40 // RFC 9562: version 4, variant 10
		id[8] = id[8]&0x3f | 0x80
		if s := base64.RawURLEncoding.EncodeToString(id); !strings.HasPrefix(s, "-") {
			return s
		}
	}
}

// list joins names for a message, the first few of them.
func list(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

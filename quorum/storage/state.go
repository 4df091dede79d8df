package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Names of the small files.
const (
	metaFile      = "meta.properties"
	lockFile      = ".lock"
	stateFile     = "quorum-state"
	spareFile     = stateFile + ".tmp" // where Kafka, too, writes the next one
	ballastFile   = "ballast"
	epochFile     = "leader-epoch-checkpoint"
	partitionFile = "partition.metadata"
	committedFile = "committed"
)

// quorumState is quorum-state as JSON. Pointers tell a missing field from a zero one: all fields of a version must be
// there. The order of the fields is Kafka's, so that our bytes are too.
type quorumStateV1 struct {
	LeaderID    *raft.NodeID `json:"leaderId"`
	LeaderEpoch *raft.Epoch  `json:"leaderEpoch"`
	VotedID     *raft.NodeID `json:"votedId"`
	VotedDir    *string      `json:"votedDirectoryId"`
	Version     *int16       `json:"data_version"`
}

type quorumStateV0 struct {
	ClusterID     *string      `json:"clusterId"`
	LeaderID      *raft.NodeID `json:"leaderId"`
	LeaderEpoch   *raft.Epoch  `json:"leaderEpoch"`
	VotedID       *raft.NodeID `json:"votedId"`
	AppliedOffset *int64       `json:"appliedOffset"`
	CurrentVoters []voterV0    `json:"currentVoters"`
	Version       *int16       `json:"data_version"`
}

type voterV0 struct {
	VoterID *raft.NodeID `json:"voterId"`
}

// Of what quorum-state, meta.properties and committed say nothing else tells, and a changed digit could make a member vote
// twice, or be another. So ours end or begin with a CRC-32C, where Kafka does not look: an extra field, a comment. Files
// without one are Kafka's.
func checksum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	stateSum = `,"crc32c":"`
	textSum  = "#crc32c "
)

// encodeQuorumState writes version 1 if kraft.version is 1 or higher, else version 0, which knows no directory ids.
func encodeQuorumState(s raft.ElectionState, kraftVersion int16, voters raft.VoterSet) []byte {
	b := plainQuorumState(s, kraftVersion, voters)
	b = fmt.Append(b[:len(b)-1:len(b)-1], stateSum, checksum(b), `"}`)
	return append(b, bytes.Repeat([]byte{' '}, -len(b)&(stateGrain-1))...)
}

// stateGrain is what the length of quorum-state is a multiple of, by blanks at its end: each takes the room of the last.
const stateGrain = 512

// plainQuorumState is the file as Kafka writes it, without a checksum.
func plainQuorumState(s raft.ElectionState, kraftVersion int16, voters raft.VoterSet) []byte {
	var v any
	if kraftVersion >= 1 {
		v = quorumStateV1{&s.Leader, &s.Epoch, &s.Voted.ID, new(s.Voted.DirectoryID.String()), new(int16(1))}
	} else {
		v0 := quorumStateV0{new(""), &s.Leader, &s.Epoch, &s.Voted.ID, new(int64(0)), []voterV0{}, new(int16(0))}
		for _, voter := range voters {
			v0.CurrentVoters = append(v0.CurrentVoters, voterV0{new(voter.Key.ID)})
		}
		v = v0
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return b
}

func decodeQuorumState(b []byte) (raft.ElectionState, error) {
	var version struct {
		Version *int16 `json:"data_version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return raft.ElectionState{}, fmt.Errorf("not JSON: %w", err)
	}
	if version.Version == nil {
		return raft.ElectionState{}, errors.New("no data_version")
	}
	var s raft.ElectionState
	b = bytes.TrimRight(b, " ")
	if i := bytes.LastIndex(b, []byte(stateSum)); i >= 0 {
		if want := checksum(append(b[:i:i], '}')); string(b[i:]) != stateSum+want+`"}` {
			return s, fmt.Errorf("it ends in %q, want crc32c %s", b[i:], want)
		}
	}
	switch *version.Version {
	case 0:
		var v quorumStateV0
		if err := json.Unmarshal(b, &v); err != nil {
			return s, err
		}
		if v.ClusterID == nil || v.LeaderID == nil || v.LeaderEpoch == nil || v.VotedID == nil || v.AppliedOffset == nil || v.CurrentVoters == nil {
			return s, errors.New("a field of version 0 is missing")
		}
		s = raft.ElectionState{Epoch: *v.LeaderEpoch, Leader: *v.LeaderID, Voted: raft.ReplicaKey{ID: *v.VotedID}}
	case 1:
		var v quorumStateV1
		if err := json.Unmarshal(b, &v); err != nil {
			return s, err
		}
		if v.LeaderID == nil || v.LeaderEpoch == nil || v.VotedID == nil || v.VotedDir == nil {
			return s, errors.New("a field of version 1 is missing")
		}
		dir, err := raft.ParseUUID(*v.VotedDir)
		if err != nil {
			return s, fmt.Errorf("votedDirectoryId: %w", err)
		}
		s = raft.ElectionState{Epoch: *v.LeaderEpoch, Leader: *v.LeaderID, Voted: raft.ReplicaKey{ID: *v.VotedID, DirectoryID: dir}}
	default:
		return s, fmt.Errorf("data_version %d, want 0 or 1", *version.Version)
	}
	if s.Epoch < 0 || s.Leader < raft.None || s.Voted.ID < raft.None {
		return s, fmt.Errorf("leaderEpoch %d, leaderId %d, votedId %d", s.Epoch, s.Leader, s.Voted.ID)
	}
	return s, nil
}

// encodeEpochs writes the text form that leader-epoch-checkpoint and committed share: version 0, number of entries, then
// "epoch offset" a line.
func encodeEpochs(entries []raft.OffsetAndEpoch) []byte {
	b := fmt.Appendf(nil, "0\n%d\n", len(entries))
	for _, e := range entries {
		b = fmt.Appendf(b, "%d %d\n", e.Epoch, e.Offset)
	}
	return b
}

func decodeEpochs(b []byte) ([]raft.OffsetAndEpoch, error) {
	if len(b) == 0 {
		return nil, nil // Kafka makes the file empty and fills it with the first epoch
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if lines[0] != "0" {
		return nil, fmt.Errorf("version %q, want 0", lines[0])
	}
	if len(lines) < 2 || lines[1] != strconv.Itoa(len(lines)-2) {
		return nil, fmt.Errorf("%d lines do not match the count in line 2", len(lines))
	}
	var entries []raft.OffsetAndEpoch
	for i, line := range lines[2:] {
		epoch, offset, _ := strings.Cut(line, " ")
		e, err1 := strconv.ParseInt(epoch, 10, 32)
		o, err2 := strconv.ParseInt(offset, 10, 64)
		if err1 != nil || err2 != nil || e < 0 || o < 0 {
			return nil, fmt.Errorf("line %d: %q, want an epoch and an offset", i+3, line)
		}
		entry := raft.OffsetAndEpoch{Offset: o, Epoch: raft.Epoch(e)}
		if n := len(entries); n > 0 && (entries[n-1].Epoch >= entry.Epoch || entries[n-1].Offset > entry.Offset) {
			return nil, fmt.Errorf("line %d: %q does not rise", i+3, line)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// encodeCommitted writes the file committed: one entry and its checksum.
func encodeCommitted(p raft.OffsetAndEpoch) []byte {
	b := encodeEpochs([]raft.OffsetAndEpoch{p})
	return fmt.Append(b, textSum, checksum(b), "\n")
}

func decodeCommitted(b []byte) (raft.OffsetAndEpoch, error) {
	if i := bytes.LastIndex(b, []byte(textSum)); i >= 0 {
		if want := checksum(b[:i]); string(b[i:]) != textSum+want+"\n" {
			return raft.OffsetAndEpoch{}, fmt.Errorf("it ends in %q, want crc32c %s", b[i:], want)
		}
		b = b[:i]
	}
	entries, err := decodeEpochs(b)
	if err == nil && len(entries) != 1 {
		err = fmt.Errorf("%d entries, want 1", len(entries))
	}
	if err != nil {
		return raft.OffsetAndEpoch{}, err
	}
	return entries[0], nil
}

func encodePartition(topicID raft.UUID) []byte {
	return []byte("version: 0\ntopic_id: " + topicID.String()) // no newline at the end, as Kafka has it
}

func decodePartition(b []byte) (raft.UUID, error) {
	var version, id string
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "version":
			version = strings.TrimSpace(value)
		case "topic_id":
			id = strings.TrimSpace(value)
		}
	}
	if version != "0" {
		return raft.UUID{}, fmt.Errorf("version %q, want 0", version)
	}
	return raft.ParseUUID(id)
}

// encodeMeta writes meta.properties in Kafka's order; the checksum stands where Kafka has the time of writing.
func encodeMeta(m Meta) []byte {
	b := fmt.Appendf(nil, "node.id=%d\ndirectory.id=%s\nversion=1\ncluster.id=%s\n", m.NodeID, m.DirectoryID, escape(m.ClusterID))
	return fmt.Appendf(nil, "%s%s\n%s", textSum, checksum(b), b)
}

// decodeMeta reads a Java properties file. A directory.id may be missing (Kafka before 3.7): it is zero then.
func decodeMeta(b []byte) (Meta, error) {
	m := Meta{NodeID: raft.None}
	if first, rest, _ := bytes.Cut(b, []byte("\n")); bytes.HasPrefix(first, []byte(textSum)) {
		if want := textSum + checksum(rest); string(first) != want {
			return m, fmt.Errorf("it begins with %q, want %q; without that line nothing is compared", first, want)
		}
	}
	seen := map[string]string{}
	for line := range bytes.Lines(b) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || text[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return m, fmt.Errorf("line %q, want key=value", text)
		}
		seen[strings.TrimSpace(key)] = unescape(strings.TrimSpace(value))
	}
	if v := seen["version"]; v != "1" {
		return m, fmt.Errorf("version=%q, want 1", v)
	}
	m.ClusterID = seen["cluster.id"]
	if m.ClusterID == "" {
		return m, errors.New("cluster.id is missing")
	}
	id, err := strconv.ParseInt(seen["node.id"], 10, 32)
	if err != nil || id < 0 {
		return m, fmt.Errorf("node.id=%q, want a number from 0", seen["node.id"])
	}
	m.NodeID = raft.NodeID(id)
	if dir, ok := seen["directory.id"]; ok {
		if m.DirectoryID, err = raft.ParseUUID(dir); err != nil {
			return m, fmt.Errorf("directory.id: %w", err)
		}
		if reserved(m.DirectoryID) {
			return m, fmt.Errorf("directory.id=%s is reserved", dir)
		}
	}
	return m, nil
}

// reserved reports whether a UUID is one of Kafka's special values: the first hundred.
func reserved(u raft.UUID) bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < 100
}

var escapes = strings.NewReplacer(`\`, `\\`, "=", `\=`, ":", `\:`, "#", `\#`, "!", `\!`, "\n", `\n`)

func escape(s string) string { return escapes.Replace(s) }

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == 'n' {
			b.WriteByte('\n')
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

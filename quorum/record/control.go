package record

import (
	"encoding/binary"
	"fmt"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// ControlType is the kind of a control record, as its key names it.
type ControlType int16

// The control records of KRaft. Types 0 and 1 end transactions, which there are none of.
const (
	TypeLeaderChange   ControlType = 2
	TypeSnapshotHeader ControlType = 3
	TypeSnapshotFooter ControlType = 4
	TypeKRaftVersion   ControlType = 5
	TypeVoters         ControlType = 6
)

func (t ControlType) String() string {
	switch t {
	case TypeLeaderChange:
		return "LeaderChange"
	case TypeSnapshotHeader:
		return "SnapshotHeader"
	case TypeSnapshotFooter:
		return "SnapshotFooter"
	case TypeKRaftVersion:
		return "KRaftVersion"
	case TypeVoters:
		return "Voters"
	}
	return fmt.Sprintf("control type %d", int16(t))
}

// Control is a control record of any kind, in a log or in a checkpoint.
type Control struct {
	Type   ControlType
	Offset int64
	Record raft.ControlRecord // nil for SnapshotHeader and SnapshotFooter
	// LastContainedLogTimestamp of a SnapshotHeader: append time of the last record it covers, milliseconds since 1970.
	LastContainedLogTimestamp int64
	// Sum, if Summed, of a SnapshotFooter: CRC-32C of all bytes of the checkpoint before the footer's batch. A batch's own
	// checksum does not cover its base offset and epoch, and in a compacted checkpoint nothing else tells them. It is a
	// tagged field of ours, which Kafka passes over.
	Sum    uint32
	Summed bool
}

// sumTag numbers the tagged field of a SnapshotFooter that holds Sum.
const sumTag = 4096

// EncodeControl makes the control batch of these records, at least one, all with the same time (milliseconds since
// 1970), as Kafka writes it.
func EncodeControl(base int64, epoch raft.Epoch, timestamp int64, records ...raft.ControlRecord) []byte {
	controls := make([]Control, len(records))
	for i, r := range records {
		controls[i] = Control{Record: r}
		switch r.(type) {
		case raft.LeaderChange:
			controls[i].Type = TypeLeaderChange
		case raft.KRaftVersion:
			controls[i].Type = TypeKRaftVersion
		case raft.Voters:
			controls[i].Type = TypeVoters
		default:
			panic(fmt.Sprintf("control record of type %T", r))
		}
	}
	return EncodeControls(base, epoch, timestamp, controls...)
}

// EncodeControls is EncodeControl for records of any kind: the head and foot of a checkpoint are such batches.
func EncodeControls(base int64, epoch raft.Epoch, timestamp int64, records ...Control) []byte {
	if len(records) == 0 {
		panic("control batch without a record") // Kafka refuses it too
	}
	b := NewBuilder(timestamp, None)
	b.h.Attributes |= attrControl
	for _, c := range records {
		b.Append(timestamp, controlKey(c.Type), appendControl(nil, c))
	}
	h := b.h
	h.BaseOffset, h.Epoch, h.LastOffsetDelta = base, epoch, h.Count-1
	return appendBatch(make([]byte, 0, b.Size()), h, b.records)
}

// DecodeControl reads the control records that a log may hold. Any other is ErrUnknown.
func DecodeControl(b Batch) ([]raft.ControlRecord, error) {
	controls, err := DecodeControls(b)
	if err != nil {
		return nil, err
	}
	records := make([]raft.ControlRecord, len(controls))
	for i, c := range controls {
		if c.Record == nil {
			return nil, fmt.Errorf("offset %d: %w: %s in a log", c.Offset, ErrUnknown, c.Type)
		}
		records[i] = c.Record
	}
	return records, nil
}

// DecodeControls reads the records of a control batch.
func DecodeControls(b Batch) ([]Control, error) {
	if !b.IsControl() {
		return nil, corrupt("batch at offset %d holds no control records", b.BaseOffset)
	}
	if b.Count == 0 {
		return nil, corrupt("control batch at offset %d is empty", b.BaseOffset)
	}
	var controls []Control
	for r, err := range b.Records() {
		if err != nil {
			return nil, err
		}
		c, err := decodeControl(r)
		if err != nil {
			return nil, fmt.Errorf("offset %d: %w", r.Offset, err)
		}
		controls = append(controls, c)
	}
	return controls, nil
}

func controlKey(t ControlType) []byte { return []byte{0, 0, byte(t >> 8), byte(t)} }

func decodeControl(r Record) (Control, error) {
	if len(r.Key) < 4 || int16(binary.BigEndian.Uint16(r.Key)) < 0 {
		return Control{}, corrupt("control key %x", r.Key)
	}
	c := Control{Type: ControlType(binary.BigEndian.Uint16(r.Key[2:])), Offset: r.Offset}
	f := fields{p: r.Value}
	version := f.int16()
	// LeaderChange 1 (directory ids of voters) exists but is never written; read it all the same.
	if version != 0 && (c.Type != TypeLeaderChange || version != 1) {
		if f.bad {
			return Control{}, corrupt("%s of %d bytes", c.Type, len(r.Value))
		}
		return Control{}, fmt.Errorf("%w: %s version %d", ErrUnknown, c.Type, version)
	}
	switch c.Type {
	case TypeLeaderChange:
		lc := raft.LeaderChange{Leader: raft.NodeID(f.int32())}
		for _, ids := range []*[]raft.NodeID{&lc.Voters, &lc.Granting} {
			for range f.array(5) {
				*ids = append(*ids, raft.NodeID(f.int32()))
				if version == 1 {
					f.take(16)
				}
				f.tags()
			}
		}
		c.Record = lc
	case TypeSnapshotHeader:
		c.LastContainedLogTimestamp = f.int64()
	case TypeSnapshotFooter:
		for n := f.uvarint(); n > 0 && !f.bad; n-- {
			tag, value := f.uvarint(), f.take(int(f.uvarint()))
			if tag == sumTag && len(value) == 4 {
				c.Sum, c.Summed = binary.BigEndian.Uint32(value), true
			}
		}
	case TypeKRaftVersion:
		c.Record = raft.KRaftVersion{Version: f.int16()}
	case TypeVoters:
		var voters []raft.Voter
		for range f.array(27) {
			voters = append(voters, f.voter())
		}
		set, err := raft.NewVoterSet(voters...)
		if err != nil && !f.bad {
			return Control{}, corrupt("%v", err)
		}
		c.Record = raft.Voters{Set: set}
	default:
		return Control{}, fmt.Errorf("%w: %s", ErrUnknown, c.Type)
	}
	if c.Type != TypeSnapshotFooter {
		f.tags()
	}
	if f.bad || len(f.p) > 0 {
		return Control{}, corrupt("%s of %d bytes, %d left over", c.Type, len(r.Value), len(f.p))
	}
	return c, nil
}

// appendControl writes a record's value: a flexible message of version 0 whose first field is that version.
func appendControl(p []byte, c Control) []byte {
	be := binary.BigEndian
	p = be.AppendUint16(p, 0)
	switch r := c.Record.(type) {
	case raft.LeaderChange:
		p = be.AppendUint32(p, uint32(r.Leader))
		for _, ids := range [][]raft.NodeID{r.Voters, r.Granting} {
			p = appendLen(p, len(ids))
			for _, id := range ids {
				p = append(be.AppendUint32(p, uint32(id)), 0)
			}
		}
	case raft.KRaftVersion:
		p = be.AppendUint16(p, uint16(r.Version))
	case raft.Voters:
		p = appendLen(p, len(r.Set))
		for _, v := range r.Set {
			p = be.AppendUint32(p, uint32(v.Key.ID))
			p = append(p, v.Key.DirectoryID[:]...)
			p = appendLen(p, len(v.Endpoints))
			for _, e := range v.Endpoints {
				p = append(appendLen(p, len(e.Name)), e.Name...)
				p = append(appendLen(p, len(e.Host)), e.Host...)
				p = append(be.AppendUint16(p, e.Port), 0)
			}
			p = be.AppendUint16(p, uint16(v.KRaft.Min))
			p = be.AppendUint16(p, uint16(v.KRaft.Max))
			p = append(p, 0, 0) // tags of the range, of the voter
		}
	case nil:
		if c.Type == TypeSnapshotHeader {
			p = be.AppendUint64(p, uint64(c.LastContainedLogTimestamp))
		}
		if c.Summed {
			p = append(binary.AppendUvarint(append(p, 1), sumTag), 4)
			return be.AppendUint32(p, c.Sum)
		}
	}
	return append(p, 0)
}

// appendLen writes the length of a compact array or string.
func appendLen(p []byte, n int) []byte { return binary.AppendUvarint(p, uint64(n)+1) }

// fields reads a flexible message; after a bad field it yields zeros and says so at the end.
type fields struct {
	p   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n < 0 || n > len(f.p) {
		f.bad, f.p = true, nil
		return nil
	}
	b := f.p[:n]
	f.p = f.p[n:]
	return b
}

func (f *fields) int16() int16 {
	if b := f.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (f *fields) int32() int32 {
	if b := f.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (f *fields) int64() int64 {
	if b := f.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.p)
	if n <= 0 || v > 1<<31 {
		f.bad, f.p = true, nil
		return 0
	}
	f.p = f.p[n:]
	return v
}

// array reads the length of an array whose elements take at least size bytes each; null is bad.
func (f *fields) array(size int) int {
	n := int(f.uvarint()) - 1
	if f.bad || n < 0 || n > len(f.p)/size {
		f.bad, f.p = true, nil
		return 0
	}
	return n
}

func (f *fields) string() string { return string(f.take(f.array(1))) }

func (f *fields) tags() {
	for n := f.uvarint(); n > 0 && !f.bad; n-- {
		f.uvarint()
		f.take(int(f.uvarint()))
	}
}

func (f *fields) voter() raft.Voter {
	v := raft.Voter{Key: raft.ReplicaKey{ID: raft.NodeID(f.int32())}}
	copy(v.Key.DirectoryID[:], f.take(16))
	for range f.array(5) {
		e := raft.Endpoint{Name: f.string(), Host: f.string(), Port: uint16(f.int16())}
		f.tags()
		v.Endpoints = append(v.Endpoints, e)
	}
	v.KRaft = raft.VersionRange{Min: f.int16(), Max: f.int16()}
	f.tags()
	f.tags()
	return v
}

package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	batches "github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

const readableFiles = "<20 digits>.log, <20 digits>-<10 digits>.checkpoint, quorum-state, meta.properties, leader-epoch-checkpoint, " +
	"partition.metadata, committed, or a directory of them"

func newDump(e *Env) *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use:   "dump FILE|DIR",
		Short: "Show what a member's files hold, byte by byte",
		Long: `Show what a member's files hold: every batch of segments and checkpoints with its position, control records in
words, and the small files beside them. It reads our directories and those of Apache Kafka's controllers, and files that
wait to be deleted. With --records it shows the records, too: keys and values quoted as in Go.

Nothing is locked or changed, and a member may run on the directory. Damage is shown where it is; what follows it is
shown as well, and the exit code is 1. With -o json each line is one value: a file, a batch, a record, or damage.

What can be read: ` + readableFiles + `.`,
		Example: `  quorum dump /var/lib/quorum
  quorum dump --records /var/lib/quorum/__cluster_metadata-0/00000000000000000000.log
  quorum dump -o json /var/lib/quorum | jq 'select(.damage)'`,
		Args: oneArg("FILE or DIR"),
	}
	cmd.Flags().BoolVar(&records, "records", false, "show the records of each batch, keys and values included")
	o := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		out := bufio.NewWriter(e.Stdout)
		d := &dumper{env: e, out: out, records: records}
		if *o == asJSON {
			d.json = json.NewEncoder(out)
			d.json.SetEscapeHTML(false)
		}
		return errors.Join(d.dump(path.Clean(args[0])), out.Flush())
	}
	return cmd
}

// oneArg wants exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments: want one, %s", len(args), what)
		}
		return nil
	}
}

type dumper struct {
	env     *Env
	out     *bufio.Writer
	json    *json.Encoder // nil: a table
	records bool

	name    string // of the file, as shown
	inUse   bool
	damages int
	first   string // the first of them
}

// dumpLine is one line of -o json. What it is about is the field that is set.
type dumpLine struct {
	File     string          `json:"file"`
	Kind     storage.Kind    `json:"kind,omitempty"`
	Position *int64          `json:"position,omitempty"`
	Bytes    *int64          `json:"bytes,omitempty"`
	InUse    bool            `json:"inUse,omitempty"`
	Batch    *dumpBatch      `json:"batch,omitempty"`
	Record   *dumpRecord     `json:"record,omitempty"`
	Control  *dumpControl    `json:"control,omitempty"`
	Meta     *dumpMeta       `json:"meta,omitempty"`
	State    *dumpState      `json:"state,omitempty"`
	Epochs   *[]dumpPosition `json:"epochs,omitempty"`
	At       *dumpPosition   `json:"committed,omitempty"`
	TopicID  string          `json:"topicId,omitempty"`
	Damage   string          `json:"damage,omitempty"`
}

type dumpBatch struct {
	BaseOffset    int64  `json:"baseOffset"`
	LastOffset    int64  `json:"lastOffset"`
	Epoch         int32  `json:"epoch"`
	Records       int32  `json:"records"`
	BaseTimestamp int64  `json:"baseTimestamp"` // milliseconds since 1970
	MaxTimestamp  int64  `json:"maxTimestamp"`
	CRC           string `json:"crc"`
	Codec         string `json:"codec"`
	Control       bool   `json:"control"`
	Transactional bool   `json:"transactional"`
	DeleteHorizon bool   `json:"deleteHorizon"` // baseTimestamp is one
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	BaseSequence  int32  `json:"baseSequence"`
}

// dumpRecord has key and value as text, or in base64 if they are none.
type dumpRecord struct {
	Offset      int64             `json:"offset"`
	Timestamp   int64             `json:"timestamp"`
	Key         *string           `json:"key"`
	KeyBase64   []byte            `json:"keyBase64,omitempty"`
	Value       *string           `json:"value"`
	ValueBase64 []byte            `json:"valueBase64,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
}

type dumpControl struct {
	Offset  int64         `json:"offset"`
	Type    string        `json:"type"`
	Leader  *raft.NodeID  `json:"leader,omitempty"`
	Voters  []raft.NodeID `json:"voters,omitempty"`
	Granted []raft.NodeID `json:"granting,omitempty"`
	Version *int16        `json:"kraftVersion,omitempty"`
	Set     []dumpVoter   `json:"voterSet,omitempty"`
	Time    *int64        `json:"lastContainedLogTimestamp,omitempty"`
}

type dumpVoter struct {
	ID          raft.NodeID `json:"id"`
	DirectoryID string      `json:"directoryId"`
	Endpoints   []string    `json:"endpoints"`
	MinVersion  int16       `json:"minKraftVersion"`
	MaxVersion  int16       `json:"maxKraftVersion"`
}

type dumpMeta struct {
	ClusterID   string      `json:"clusterId"`
	NodeID      raft.NodeID `json:"nodeId"`
	DirectoryID string      `json:"directoryId"`
}

type dumpState struct {
	Version          int16         `json:"version"`
	Epoch            raft.Epoch    `json:"epoch"`
	Leader           raft.NodeID   `json:"leader"`
	Voted            raft.NodeID   `json:"voted"`
	VotedDirectoryID string        `json:"votedDirectoryId"`
	Voters           []raft.NodeID `json:"voters,omitempty"`
}

type dumpPosition struct {
	Epoch  raft.Epoch `json:"epoch"`
	Offset int64      `json:"offset"`
}

func (d *dumper) dump(name string) error {
	info, err := d.env.FS.Stat(name)
	if err != nil {
		return fmt.Errorf("dump %s: %w", name, cause(err))
	}
	// The lock lies beside meta.properties: in the directory, or above the log's.
	for _, dir := range []string{name, path.Dir(name), path.Dir(path.Dir(name))} {
		if held, err := d.env.FS.Locked(path.Join(dir, ".lock")); err == nil && held {
			d.inUse = true
			break
		}
	}
	switch {
	case info.Dir:
		err = d.dir(name)
	case !storage.Readable(name):
		return fmt.Errorf("dump %s: no file of a member by its name: want %s", name, readableFiles)
	default:
		err = d.file(name, name, info.Size)
	}
	if err != nil {
		return err
	}
	if d.damages > 0 {
		return fmt.Errorf("dump %s: damaged in %s, the first: %s", name, places(d.damages), d.first)
	}
	return nil
}

func places(n int) string {
	if n == 1 {
		return "1 place"
	}
	return fmt.Sprintf("%d places", n)
}

// dir shows a member's directory, or only that of its log.
func (d *dumper) dir(dir string) error {
	names, infos, err := d.list(dir)
	if err != nil {
		return err
	}
	logs := map[string][]string{} // what is in them
	known := slices.ContainsFunc(names, storage.Readable)
	for i, name := range names {
		if !infos[i].Dir {
			continue
		}
		if inside, _, err := d.list(path.Join(dir, name)); err == nil && storage.IsLogDir(name, inside) {
			logs[name], known = inside, true
		}
	}
	if !known {
		return fmt.Errorf("dump %s: it holds no file of a member: want %s", dir, readableFiles)
	}
	for i, name := range names {
		switch _, log := logs[name]; {
		case log:
			inside, infos, err := d.list(path.Join(dir, name))
			if err != nil {
				return err
			}
			for i, file := range inside {
				if err := d.file(path.Join(dir, name, file), path.Join(name, file), infos[i].Size); err != nil {
					return err
				}
			}
		case infos[i].Dir:
			d.name = name
			if err := d.header(dumpLine{File: name, Kind: storage.KindUnknown}, "a directory of something else: not read"); err != nil {
				return err
			}
		default:
			if err := d.file(path.Join(dir, name), name, infos[i].Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns what is in a directory and was there for long enough to be looked at.
func (d *dumper) list(dir string) (names []string, infos []vfs.Info, err error) {
	all, err := d.env.FS.List(dir)
	for _, name := range all {
		info, err := d.env.FS.Stat(path.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // a running member removed it
		case err != nil:
			return nil, nil, fmt.Errorf("dump %s: %w", path.Join(dir, name), cause(err))
		default:
			names, infos = append(names, name), append(infos, info)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("dump %s: %w", dir, cause(err))
	}
	return names, infos, nil
}

// file shows one file, called name to the reader.
func (d *dumper) file(full, name string, size int64) error {
	d.name = name
	kind := storage.KindOf(path.Base(full))
	what := fmt.Sprintf("%d bytes", size)
	switch kind {
	case storage.KindSegment, storage.KindCheckpoint:
		what = fmt.Sprintf("%s, %d bytes", kind, size)
	case storage.KindLock:
		what = map[bool]string{true: "held by a running member", false: "not held"}[d.inUse]
	case storage.KindSpare:
		what += ", room for the next quorum-state: what is in it means nothing"
	case storage.KindBallast:
		what += ", room that is given up when the disk is full: what is in it means nothing"
	case storage.KindUnknown:
		what += ", not of a member: not read"
	case storage.KindKafka:
		what += ", an index or list that Kafka derives from the log: not read"
	case storage.KindProducers:
		what += ", producers' state that Kafka derives from the log: checksum only"
	case storage.KindLeftover:
		what += ", left by an interrupted write or waiting to be deleted"
	default:
	}
	if err := d.header(dumpLine{File: name, Kind: kind, Bytes: &size, InUse: d.inUse}, what); err != nil {
		return err
	}
	if kind == storage.KindLeftover && full != name {
		return nil // asked for by name it is shown
	}
	columns := d.json == nil
	err := storage.Inspect(d.env.FS, full, func(p storage.Part) error {
		if _, ok := p.Value.(batches.Batch); columns && (ok || kind == storage.KindSegment || kind == storage.KindCheckpoint) {
			columns = false
			d.row("POSITION", "BYTES", "OFFSETS", "EPOCH", "RECORDS", "TIME", "CRC", "")
		}
		return d.part(p)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dump %s: %w", full, cause(err))
	}
	return nil
}

func (d *dumper) header(line dumpLine, what string) error {
	if d.json != nil {
		return d.json.Encode(line)
	}
	_, err := fmt.Fprintf(d.out, "%s: %s\n", d.name, what)
	return err
}

func (d *dumper) row(position, bytes, offsets, epoch, records, when, crc, rest string) {
	line := fmt.Sprintf("%12s %9s  %-17s %6s %8s  %-24s  %-8s  %s", position, bytes, offsets, epoch, records, when, crc, rest)
	fmt.Fprintln(d.out, strings.TrimRight(line, " "))
}

// part shows a stretch of a file: what it is, then what is wrong with it.
func (d *dumper) part(p storage.Part) error {
	if b, ok := p.Value.(batches.Batch); ok {
		if err := d.batch(p, b); err != nil {
			return err
		}
	} else if p.Value != nil {
		if err := d.small(p); err != nil {
			return err
		}
	}
	if p.Err == nil {
		return nil
	}
	if d.inUse && errors.Is(p.Err, batches.ErrShort) {
		if d.json == nil {
			fmt.Fprintf(d.out, "%12d %9d  the member may be writing it just now\n", p.Position, p.Bytes)
		}
		return nil
	}
	if d.damages++; d.first == "" {
		d.first = fmt.Sprintf("%s, position %d: %v", d.name, p.Position, p.Err)
	}
	if d.json != nil {
		return d.json.Encode(dumpLine{File: d.name, Position: &p.Position, Bytes: &p.Bytes, Damage: p.Err.Error()})
	}
	fmt.Fprintf(d.out, "%12d %9d  DAMAGED: %v\n", p.Position, p.Bytes, p.Err)
	return nil
}

func (d *dumper) batch(p storage.Part, b batches.Batch) error {
	if d.json != nil {
		if err := d.json.Encode(dumpLine{File: d.name, Position: &p.Position, Bytes: &p.Bytes, Batch: &dumpBatch{
			BaseOffset: b.BaseOffset, LastOffset: b.LastOffset(), Epoch: int32(b.Epoch), Records: b.Count,
			BaseTimestamp: b.BaseTimestamp, MaxTimestamp: b.MaxTimestamp, CRC: fmt.Sprintf("%08x", b.CRC), Codec: b.Codec().String(),
			Control: b.IsControl(), Transactional: b.IsTransactional(), DeleteHorizon: b.HasDeleteHorizon(),
			ProducerID: b.ProducerID, ProducerEpoch: b.ProducerEpoch, BaseSequence: b.BaseSequence,
		}}); err != nil {
			return err
		}
	} else {
		d.row(fmt.Sprint(p.Position), fmt.Sprint(p.Bytes), fmt.Sprintf("%d-%d", b.BaseOffset, b.LastOffset()), fmt.Sprint(b.Epoch),
			fmt.Sprint(b.Count), moment(b.MaxTimestamp), fmt.Sprintf("%08x", b.CRC), strings.Join(features(b), ", "))
	}
	if b.IsControl() {
		controls, err := batches.DecodeControls(b)
		if err != nil {
			return nil // the part's error says why
		}
		for _, c := range controls {
			if err := d.control(c); err != nil {
				return err
			}
		}
		return nil
	}
	if !d.records {
		return nil
	}
	for r, err := range b.Records() {
		if err != nil {
			return nil // the part's error says why
		}
		if err := d.record(r); err != nil {
			return err
		}
	}
	return nil
}

// features are the unusual things about a batch.
func features(b batches.Batch) (all []string) {
	if b.IsControl() {
		all = append(all, "control")
	}
	if b.IsTransactional() {
		all = append(all, "transactional")
	}
	if b.Codec() != batches.None {
		all = append(all, b.Codec().String())
	}
	if b.ProducerID >= 0 {
		all = append(all, fmt.Sprintf("producer %d epoch %d sequences %d-%d", b.ProducerID, b.ProducerEpoch, b.BaseSequence, b.LastSequence()))
	}
	if b.HasDeleteHorizon() {
		all = append(all, "tombstones until "+moment(b.BaseTimestamp))
	}
	return all
}

func (d *dumper) record(r batches.Record) error {
	if d.json == nil {
		fmt.Fprintf(d.out, "%24s%-17d %17s%s  %s = %s", "", r.Offset, "", moment(r.Timestamp), quoted(r.Key), quoted(r.Value))
		for _, h := range r.Headers() {
			fmt.Fprintf(d.out, "  %s: %s", strconv.Quote(h.Key), quoted(h.Value))
		}
		_, err := fmt.Fprintln(d.out)
		return err
	}
	line := dumpRecord{Offset: r.Offset, Timestamp: r.Timestamp}
	line.Key, line.KeyBase64 = textOr64(r.Key)
	line.Value, line.ValueBase64 = textOr64(r.Value)
	for _, h := range r.Headers() {
		if line.Headers == nil {
			line.Headers = map[string]string{}
		}
		line.Headers[h.Key] = quoted(h.Value)
	}
	return d.json.Encode(dumpLine{File: d.name, Record: &line})
}

// quoted prints bytes safely, and tells null from empty.
func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.Quote(string(b))
}

func textOr64(b []byte) (*string, []byte) {
	if b != nil && !utf8.Valid(b) {
		return nil, b
	}
	return text(b), nil
}

func (d *dumper) control(c batches.Control) error {
	line := dumpControl{Offset: c.Offset, Type: c.Type.String()}
	var words string
	switch r := c.Record.(type) {
	case raft.LeaderChange:
		line.Leader, line.Voters, line.Granted = &r.Leader, r.Voters, r.Granting
		words = fmt.Sprintf("leader %d, voters %v, granted by %v", r.Leader, r.Voters, r.Granting)
	case raft.KRaftVersion:
		line.Version = &r.Version
		words = fmt.Sprint(r.Version)
	case raft.Voters:
		var each []string
		for _, v := range r.Set {
			var endpoints []string
			for _, e := range v.Endpoints {
				endpoints = append(endpoints, fmt.Sprintf("%s://%s", e.Name, hostPort(e)))
			}
			line.Set = append(line.Set, dumpVoter{v.Key.ID, v.Key.DirectoryID.String(), endpoints, v.KRaft.Min, v.KRaft.Max})
			each = append(each, fmt.Sprintf("%s %s kraft.version %d-%d", v.Key, strings.Join(endpoints, " "), v.KRaft.Min, v.KRaft.Max))
		}
		words = strings.Join(each, ", ")
	default:
		if c.Type == batches.TypeSnapshotHeader {
			line.Time = &c.LastContainedLogTimestamp
			words = "of a log up to " + moment(c.LastContainedLogTimestamp)
		}
	}
	if d.json != nil {
		return d.json.Encode(dumpLine{File: d.name, Control: &line})
	}
	_, err := fmt.Fprintln(d.out, strings.TrimRight(fmt.Sprintf("%24s%-17d %17s%s %s", "", c.Offset, "", line.Type, words), " "))
	return err
}

// small shows a file that is one value.
func (d *dumper) small(p storage.Part) error {
	line := dumpLine{File: d.name}
	var words []string
	switch v := p.Value.(type) {
	case storage.Meta:
		line.Meta = &dumpMeta{v.ClusterID, v.NodeID, v.DirectoryID.String()}
		words = []string{fmt.Sprintf("cluster %s, node %d, directory %s", v.ClusterID, v.NodeID, v.DirectoryID)}
	case storage.State:
		line.State = &dumpState{v.Version, v.Epoch, v.Leader, v.Voted.ID, v.Voted.DirectoryID.String(), v.Voters}
		words = []string{fmt.Sprintf("version %d: epoch %d, leader %s, voted for %s", v.Version, v.Epoch, someone(raft.ReplicaKey{ID: v.Leader}), someone(v.Voted))}
		if v.Version == 0 {
			words[0] += fmt.Sprintf(", voters %v", v.Voters)
		}
	case raft.UUID:
		line.TopicID = v.String()
		words = []string{"topic id " + v.String()}
	case raft.OffsetAndEpoch:
		line.At = &dumpPosition{v.Epoch, v.Offset}
		words = []string{fmt.Sprintf("all before offset %d, of epoch %d, is committed and synced", v.Offset, v.Epoch)}
	case []raft.OffsetAndEpoch:
		line.Epochs = &[]dumpPosition{}
		for _, e := range v {
			*line.Epochs = append(*line.Epochs, dumpPosition{e.Epoch, e.Offset})
			words = append(words, fmt.Sprintf("epoch %d begins at offset %d", e.Epoch, e.Offset))
		}
	}
	if d.json != nil {
		return d.json.Encode(line)
	}
	for _, w := range words {
		fmt.Fprintf(d.out, "  %s\n", w)
	}
	return nil
}

func someone(k raft.ReplicaKey) string {
	if k.ID == raft.None {
		return "nobody"
	}
	return k.String()
}

func hostPort(e raft.Endpoint) string {
	if strings.Contains(e.Host, ":") {
		return fmt.Sprintf("[%s]:%d", e.Host, e.Port)
	}
	return fmt.Sprintf("%s:%d", e.Host, e.Port)
}

// moment prints a timestamp of a record; what is far from any clock is printed as the number that it is.
func moment(millis int64) string {
	if millis < 0 || millis >= 253402300800000 { // the year 10000
		return fmt.Sprint(millis)
	}
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}

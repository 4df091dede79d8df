package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// driver drives one replica by hand: its clock stands still and its flushes wait until a test lets them go on.
type driver struct {
	t       *testing.T
	fs      *vfs.Mem
	voters  raft.VoterSet
	r       *Replica
	now     raft.Instant
	lastID  raft.RequestID
	answers map[raft.RequestID]any
	sends   []raft.Send
	flush   *Flush
	jobs    []*Job
	ran     int // jobs so far
	dropped []error
	through vfs.FS        // what the replica sees of fs; nil: all
	hold    bool          // flushes and jobs wait for release
	wall    time.Duration // how wrong the wall clock is
	static  raft.VoterSet

	storage   storage.Options
	snapshots Snapshots
}

var self = raft.ReplicaKey{ID: 0, DirectoryID: raft.UUID{0: 0x10}}

// newDriver starts a replica whose quorum is node 0, itself, and the others up to n.
func newDriver(t *testing.T, n int) *driver {
	t.Helper()
	d := &driver{t: t, fs: vfs.NewMem(), answers: map[raft.RequestID]any{}}
	var set []raft.Voter
	for i := range n {
		key := raft.ReplicaKey{ID: raft.NodeID(i), DirectoryID: raft.UUID{0: 0x10, 15: byte(i)}}
		set = append(set, raft.Voter{Key: key, KRaft: raft.VersionRange{Max: 1}, Endpoints: endpoints(i)})
	}
	d.voters, _ = raft.NewVoterSet(set...)
	if err := storage.Format(d.fs, "/data", storage.FormatOptions{ClusterID: "c", NodeID: 0, InitialVoters: d.voters, KRaftVersion: 1}); err != nil {
		t.Fatal(err)
	}
	d.open()
	return d
}

func endpoints(i int) []raft.Endpoint {
	return []raft.Endpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("host-%d", i), Port: 9093}}
}

func (d *driver) open() {
	d.t.Helper()
	fsys := vfs.FS(d.fs)
	if d.through != nil {
		fsys = d.through
	}
	r, err := Open(fsys, "/data", d.storage, Config{
		Raft: raft.Config{
			Endpoints: endpoints(0), Listener: "CONTROLLER", KRaft: raft.VersionRange{Max: 1}, StaticVoters: d.static,
			ElectionTimeout: time.Second, FetchTimeout: 2 * time.Second, ElectionBackoffMax: time.Second,
			RequestTimeout: 2 * time.Second, RetryBackoff: 20 * time.Millisecond,
			FetchMaxWait: 500 * time.Millisecond, FetchMaxBytes: 1 << 20, MaxPending: 100,
			Rand: rand.New(rand.NewPCG(1, 2)),
		},
		Producers:      state.Options{MaxProducers: 100, Expiration: time.Hour},
		Snapshots:      d.snapshots,
		MaxParkedReads: 10,
		Wall:           func() time.Time { return time.UnixMilli(1_700_000_000_000).Add(d.wall) },
	}, d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	d.r, d.flush, d.jobs, d.sends = r, nil, nil, nil
	d.take(r.Start(d.now))
}

// reopen closes the replica gracefully and starts it again.
func (d *driver) reopen() {
	d.t.Helper()
	if err := d.r.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.open()
}

func (d *driver) take(o Output) {
	d.t.Helper()
	if o.Fatal != nil {
		d.t.Fatalf("fatal: %+v", o.Fatal)
	}
	for _, a := range o.Answers {
		if _, twice := d.answers[a.ID]; twice {
			d.t.Fatalf("request %d is answered twice", a.ID)
		}
		d.answers[a.ID] = a.Result
	}
	d.sends = append(d.sends, o.Sends...)
	d.dropped = append(d.dropped, o.Dropped...)
	if o.WriteCommitted {
		if err := d.r.Dir().WriteCommitted(); err != nil {
			d.t.Fatal(err)
		}
	}
	d.jobs = append(d.jobs, o.Jobs...)
	if o.Flush != nil {
		d.flush = o.Flush
	}
	if !d.hold {
		d.release()
	}
}

// release runs the flush and the jobs that wait, and those that follow from them.
func (d *driver) release() {
	d.t.Helper()
	for d.flush != nil || len(d.jobs) > 0 {
		if f := d.flush; f != nil {
			d.flush = nil
			d.step(Flushed{Flush: f, Err: f.Run()})
			continue
		}
		job := d.jobs[0]
		d.jobs = d.jobs[1:]
		d.ran++
		d.step(Done{Job: job, Err: job.Run()})
	}
}

func (d *driver) step(e Event) { d.t.Helper(); d.take(d.r.Step(d.now, e)) }

func (d *driver) id() raft.RequestID { d.lastID++; return d.lastID }

// pass lets time go by, with all its ticks.
func (d *driver) pass(by time.Duration) {
	d.t.Helper()
	until := d.now.Add(by)
	for {
		at := d.r.Deadline()
		if at > until {
			d.now = until
			return
		}
		d.now = max(d.now, at)
		d.step(Tick{})
	}
}

func (d *driver) produce(b ClientBatch, timeout time.Duration) raft.RequestID {
	d.t.Helper()
	id := d.id()
	d.step(Produce{ID: id, Batch: b, Timeout: timeout})
	return id
}

func (d *driver) answered(id raft.RequestID) bool { _, ok := d.answers[id]; return ok }

// answer is the result of a request, which must be there by now.
func answer[T any](d *driver, id raft.RequestID) T {
	d.t.Helper()
	result, ok := d.answers[id].(T)
	if !ok {
		d.t.Fatalf("request %d was answered with %T %+v, want %T", id, d.answers[id], d.answers[id], result)
	}
	return result
}

// batch makes a client's batch of n records. Producer -1: not idempotent.
func (d *driver) batch(producer int64, sequence int32, n int) ClientBatch {
	d.t.Helper()
	b := record.NewBuilder(1_700_000_000_000, record.None)
	if producer >= 0 {
		b.Producer(producer, 0, sequence)
	}
	for i := range n {
		b.Append(1_700_000_000_000, []byte("key"), fmt.Appendf(nil, "%d", i))
	}
	raw, err := b.Build(0, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := CheckProduce(raw, record.Keyed, 1<<20)
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func (d *driver) read(offset int64, minBytes int, wait time.Duration) raft.RequestID {
	d.t.Helper()
	id := d.id()
	d.step(Read{ID: id, LeaderEpoch: -1, Offset: offset, MinBytes: minBytes, MaxBytes: 1 << 20, MaxWait: wait})
	return id
}

// offsets are the first and last offset of what was read; -1, -1 of nothing.
func offsets(t *testing.T, raw []byte) (first, last int64) {
	t.Helper()
	first, last = -1, -1
	for b, err := range record.All(raw) {
		if err != nil {
			t.Fatal(err)
		}
		if first < 0 {
			first = b.BaseOffset
		}
		last = b.LastOffset()
	}
	return first, last
}

func TestAppendIsAnsweredWhenItIsOnDisk(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	base := d.r.Status().LogEnd.Offset
	d.hold = true
	id := d.produce(d.batch(-1, -1, 3), 0)
	if d.answered(id) {
		t.Fatal("answered before the flush")
	}
	if got := d.r.Status().LogEnd.Offset; got != base+3 {
		t.Fatalf("log end %d before the flush, want %d: the flush runs beside everything else", got, base+3)
	}
	d.release()
	if got := answer[ProduceResult](d, id); got.Error != raft.NoError || got.BaseOffset != base {
		t.Errorf("got %+v, want success at offset %d", got, base)
	}
}

func TestDuplicateWaitsForItsOriginal(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	base := d.r.Status().LogEnd.Offset
	d.hold = true
	first := d.produce(d.batch(5, 0, 2), 0)
	again := d.produce(d.batch(5, 0, 2), 0)  // of one that is appended but not committed
	second := d.produce(d.batch(5, 2, 1), 0) // waits for the flush
	repeat := d.produce(d.batch(5, 2, 1), 0) // of one that is not appended yet
	for _, id := range []raft.RequestID{first, again, second, repeat} {
		if d.answered(id) {
			t.Errorf("request %d is answered before the flush: %+v", id, d.answers[id])
		}
	}
	d.release()
	for id, want := range map[raft.RequestID]int64{first: base, again: base, second: base + 2, repeat: base + 2} {
		if got := answer[ProduceResult](d, id); got.Error != raft.NoError || got.BaseOffset != want {
			t.Errorf("request %d: %+v, want success at offset %d", id, got, want)
		}
	}
	if end := d.r.Status().LogEnd.Offset; end != base+3 {
		t.Errorf("log end %d, want %d: a duplicate was appended", end, base+3)
	}
	if d.r.Counts().Proposals != 0 {
		t.Errorf("%+v are left", d.r.Counts())
	}
}

func TestProducersAreRememberedOverARestart(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	first := answer[ProduceResult](d, d.produce(d.batch(5, 0, 2), 0))
	d.reopen()
	d.pass(10 * time.Second)
	if got := answer[ProduceResult](d, d.produce(d.batch(5, 0, 2), 0)); got.Error != raft.NoError || got.BaseOffset != first.BaseOffset {
		t.Errorf("retry after a restart: %+v, want success at offset %d", got, first.BaseOffset)
	}
	if got := answer[ProduceResult](d, d.produce(d.batch(5, 7, 1), 0)); got.Error != raft.OutOfOrderSequence || got.Message == "" {
		t.Errorf("a gap after a restart: %+v", got)
	}
}

func TestProducerIDsAreNeverHandedOutTwice(t *testing.T) {
	d := newDriver(t, 1)
	seen := map[int64]bool{}
	for range 3 {
		d.pass(10 * time.Second)
		for range 5 {
			id := d.id()
			d.step(InitProducer{ID: id})
			got := answer[InitProducerResult](d, id)
			if got.Error != raft.NoError || seen[got.ProducerID] {
				t.Fatalf("got %+v after %v", got, seen)
			}
			seen[got.ProducerID] = true
		}
		d.reopen()
	}
}

func TestAppendTimesOutButIsNotTakenBack(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	d.hold = true
	id := d.produce(d.batch(5, 0, 1), time.Second)
	d.pass(999 * time.Millisecond)
	if d.answered(id) {
		t.Fatal("answered too early")
	}
	d.pass(time.Millisecond)
	if got := answer[ProduceResult](d, id); got.Error != raft.RequestTimedOut {
		t.Fatalf("got %+v, want REQUEST_TIMED_OUT", got)
	}
	d.release()
	if got := answer[ProduceResult](d, d.produce(d.batch(5, 0, 1), time.Second)); got.Error != raft.NoError {
		t.Errorf("the retry: %+v, want success as a duplicate", got)
	}
}

func TestReadIsParkedUntilEnoughIsCommitted(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	end := d.r.HighWatermark()
	d.hold = true
	waiting := d.read(end, 1, 500*time.Millisecond)
	patient := d.read(end, 1<<20, 500*time.Millisecond)
	d.produce(d.batch(-1, -1, 2), 0)
	if d.answered(waiting) {
		t.Fatal("answered with what is not committed")
	}
	d.release()
	got := answer[ReadResult](d, waiting)
	if first, last := offsets(t, got.Records); first != end || last != end+1 || got.HighWatermark != end+2 {
		t.Errorf("read %d to %d with high watermark %d, want %d to %d", first, last, got.HighWatermark, end, end+1)
	}
	if d.answered(patient) {
		t.Fatal("answered before MinBytes are there")
	}
	d.pass(500 * time.Millisecond)
	if first, _ := offsets(t, answer[ReadResult](d, patient).Records); first != end {
		t.Errorf("after MaxWait read from %d, want %d", first, end)
	}
	if d.r.Counts().Reads != 0 {
		t.Errorf("%d reads are left", d.r.Counts().Reads)
	}
}

func TestReadErrors(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	end, epoch := d.r.HighWatermark(), d.r.Status().Election.Epoch
	tests := []struct {
		name string
		read Read
		want raft.ErrorCode
	}{
		{"before the log", Read{Offset: -1, LeaderEpoch: -1}, raft.OffsetOutOfRange},
		{"beyond the log of a leader", Read{Offset: end + 1, LeaderEpoch: -1}, raft.OffsetOutOfRange},
		{"at the end", Read{Offset: end, LeaderEpoch: epoch}, raft.NoError},
		{"with an older epoch", Read{Offset: 0, LeaderEpoch: epoch - 1}, raft.FencedLeaderEpoch},
		{"with a newer epoch", Read{Offset: 0, LeaderEpoch: epoch + 1}, raft.UnknownLeaderEpoch},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.read.ID = d.id()
			d.step(test.read)
			if got := answer[ReadResult](d, test.read.ID); got.Error != test.want || got.Records == nil {
				t.Errorf("got %+v, want error %d and records that are not nil", got, test.want)
			}
		})
	}
}

// What was once shown as committed is served after a restart, before anybody leads; beyond it clients wait.
func TestPR02HighWatermarkForClientsNeverFalls(t *testing.T) {
	d := newDriver(t, 3)
	d.respond(d.follow(6), 6, join(logged(t, 0, 5, 6, 6, 6)...), 3)
	d.respond(d.fetch(), 6, nil, 3)
	d.pass(1500 * time.Millisecond)
	d.reopen()
	if got := d.r.HighWatermark(); got != 3 {
		t.Fatalf("high watermark %d after a restart, want 3", got)
	}
	if first, last := offsets(t, answer[ReadResult](d, d.read(0, 1, 0)).Records); first != 0 || last != 2 {
		t.Errorf("read %d to %d, want 0 to 2", first, last)
	}
	if got := answer[ReadResult](d, d.read(4, 1, 0)); got.Error != raft.OffsetNotAvailable {
		t.Errorf("beyond it: %+v, want OFFSET_NOT_AVAILABLE", got)
	}
	// A new leader whose epoch has committed nothing yet knows no high watermark.
	d.respond(d.follow(7), 7, nil, raft.Unknown)
	if got := d.r.HighWatermark(); got != 3 {
		t.Errorf("high watermark %d under a leader that knows none, want 3", got)
	}
}

// What was committed before a restart is known from the file committed alone: it counts all the same.
func TestPR03TruncationBelowHighWatermarkIsFatalAfterARestart(t *testing.T) {
	d := newDriver(t, 3)
	d.respond(d.follow(6), 6, join(logged(t, 0, 5, 6, 6, 6)...), 3)
	d.respond(d.fetch(), 6, nil, 3)
	d.pass(1500 * time.Millisecond)
	d.reopen()
	out := d.r.Step(d.now, Fetched{Correlation: d.follow(7).Correlation, Response: raft.FetchResponse{
		Header: raft.Header{Epoch: 7, Leader: 1}, HighWatermark: raft.Unknown, Diverging: &raft.OffsetAndEpoch{Offset: 2, Epoch: 6},
	}})
	if out.Fatal == nil || out.Fatal.Reason != raft.TruncationBelowHW {
		t.Errorf("asked to truncate to 2, below 3: %+v, want %s", out.Fatal, raft.TruncationBelowHW)
	}
}

func TestListOffsets(t *testing.T) {
	d := newDriver(t, 1)
	d.pass(10 * time.Second)
	answer[ProduceResult](d, d.produce(d.batch(-1, -1, 4), 0))
	for timestamp, want := range map[int64]int64{Earliest: 0, Latest: d.r.HighWatermark(), MaxTimestamp: 0, 1_700_000_000_000: 0, 1_700_000_000_001: raft.Unknown} {
		id := d.id()
		d.step(ListOffsets{ID: id, LeaderEpoch: -1, Timestamp: timestamp})
		if got := answer[ListOffsetsResult](d, id); got.Error != raft.NoError || got.Offset != want {
			t.Errorf("offset for %d: %+v, want %d", timestamp, got, want)
		}
	}
}

// follow makes the replica a follower of node 1 in an epoch and returns the Fetch that it sends.
func (d *driver) follow(epoch raft.Epoch) raft.Send {
	d.t.Helper()
	d.sends = nil
	d.step(Core{Event: raft.Inbound{ID: d.id(), Request: raft.BeginQuorumEpochRequest{
		ClusterID: new("c"), Voter: self, Leader: 1, Epoch: epoch, Endpoints: endpoints(1),
	}}})
	return d.fetch()
}

// fetch is the newest Fetch that was sent to node 1.
func (d *driver) fetch() raft.Send {
	d.t.Helper()
	for _, s := range slices.Backward(d.sends) {
		if _, ok := s.Request.(raft.FetchRequest); ok && s.To.ID == 1 {
			return s
		}
	}
	d.t.Fatalf("no Fetch to node 1 among %+v", d.sends)
	return raft.Send{}
}

// logged makes batches as they stand in a log, one of each epoch in turn.
func logged(t *testing.T, base int64, epochs ...raft.Epoch) [][]byte {
	t.Helper()
	var all [][]byte
	for i, epoch := range epochs {
		raw, err := record.NewBuilder(0, record.None).Append(0, []byte("k"), fmt.Appendf(nil, "%d", i)).Build(base+int64(i), epoch)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw)
	}
	return all
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func (d *driver) respond(to raft.Send, epoch raft.Epoch, records []byte, highWatermark int64) {
	d.t.Helper()
	d.sends = nil
	d.step(Fetched{Correlation: to.Correlation, Records: records, Response: raft.FetchResponse{
		Header: raft.Header{Epoch: epoch, Leader: 1, LeaderEndpoints: endpoints(1)}, HighWatermark: highWatermark,
	}})
}

// A follower that is behind fetches faster than its timers run: it must not fill its disk between two of them.
func TestFastFollowerStopsAtItsReserve(t *testing.T) {
	const reserve = 4 << 20
	d := newDriver(t, 3)
	d.storage.Reserve = reserve
	d.reopen()
	d.fs.SetCapacity(3 * reserve)
	to := d.follow(6)
	for offset := int64(0); !d.r.BelowReserve(); offset++ {
		raw, err := record.NewBuilder(0, record.None).Append(0, []byte("k"), make([]byte, 1<<20-100)).Build(offset, 6)
		if err != nil {
			t.Fatal(err)
		}
		if d.respond(to, 6, raw, 0); !d.r.BelowReserve() {
			to = d.fetch()
		}
	}
	if free, _ := d.fs.FreeSpace("/"); free < reserve/2 {
		t.Errorf("%d bytes are left of a reserve of %d", free, reserve)
	}
}

// The leader may have been truncating while it sent: what comes is believed up to the first bad or newer batch (B-25).
func TestPR18FetchedBytesAreBelievedUpToTheFirstBadBatch(t *testing.T) {
	flip := func(b []byte) []byte {
		b = append([]byte{}, b...)
		b[len(b)-1] ^= 1
		return b
	}
	tests := []struct {
		name    string
		records func(t *testing.T) []byte
		want    int64 // log end
		dropped int
	}{
		{"all good", func(t *testing.T) []byte { return join(logged(t, 0, 5, 6, 6)...) }, 3, 0},
		{"of an epoch that is not ours yet", func(t *testing.T) []byte { return join(logged(t, 0, 5, 6, 7)...) }, 2, 0},
		{"second with a bad CRC", func(t *testing.T) []byte {
			b := logged(t, 0, 6, 6, 6)
			return join(b[0], flip(b[1]), b[2])
		}, 1, 1},
		{"first with a bad CRC", func(t *testing.T) []byte { return join(flip(logged(t, 0, 6)[0])) }, 0, 1},
		{"cut in the second", func(t *testing.T) []byte {
			b := logged(t, 0, 6, 6)
			return join(b[0], b[1][:65])
		}, 1, 0},
		{"a hole", func(t *testing.T) []byte { return join(logged(t, 0, 6)[0], logged(t, 5, 6)[0]) }, 1, 1},
		{"epochs that fall", func(t *testing.T) []byte { return join(logged(t, 0, 6, 5)...) }, 1, 1},
		{"not where the log ends", func(t *testing.T) []byte { return join(logged(t, 7, 6)...) }, 0, 1},
		{"garbage", func(*testing.T) []byte { return make([]byte, 200) }, 0, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDriver(t, 3)
			d.respond(d.follow(6), 6, test.records(t), 0)
			if got := d.r.Status().LogEnd.Offset; got != test.want {
				t.Errorf("log end %d, want %d", got, test.want)
			}
			if len(d.dropped) != test.dropped {
				t.Errorf("dropped %v, want %d", d.dropped, test.dropped)
			}
			d.pass(time.Second)
			if f := d.fetch().Request.(raft.FetchRequest); f.Offset != test.want {
				t.Errorf("the next Fetch is from %d, want %d", f.Offset, test.want)
			}
		})
	}
}

// A Fetch acknowledges what is before it: it waits for the disk (PR-13).
func TestPR13FollowerFetchesOnFromWhatIsOnDisk(t *testing.T) {
	d := newDriver(t, 3)
	first := d.follow(6)
	d.hold = true
	d.respond(first, 6, join(logged(t, 0, 6, 6)...), 0)
	for _, s := range d.sends {
		if f, ok := s.Request.(raft.FetchRequest); ok && f.Offset > 0 {
			t.Fatalf("sent a Fetch from %d before the flush", f.Offset)
		}
	}
	d.release()
	if f := d.fetch().Request.(raft.FetchRequest); f.Offset != 2 {
		t.Errorf("after the flush a Fetch from %d, want 2", f.Offset)
	}
}

// Beside a long flush it asks for what it has, to stay in touch, and takes what comes again for no fault of anybody (ST-14).
func TestST14RecordsBesideAFlushAreHereAlready(t *testing.T) {
	d := newDriver(t, 3)
	first := d.follow(6)
	d.hold = true
	records := join(logged(t, 0, 6, 6)...)
	d.respond(first, 6, records, 0)
	d.pass(time.Second)
	again := d.fetch()
	if f := again.Request.(raft.FetchRequest); f.Offset != 0 || again.Correlation == first.Correlation {
		t.Fatalf("beside the flush %+v, want a new Fetch from 0", f)
	}
	d.respond(again, 6, records, 0)
	if got := d.r.Status().LogEnd.Offset; got != 2 || len(d.dropped) > 0 {
		t.Errorf("log end %d, want 2; dropped %v, want nothing", got, d.dropped)
	}
	d.release()
	if f := d.fetch().Request.(raft.FetchRequest); f.Offset != 2 {
		t.Errorf("after the flush a Fetch from %d, want 2", f.Offset)
	}
}

// A follower's producer state is truncated along with its log: the next leader must not take a lost batch for a duplicate.
func TestProducersFollowTheTruncatedLog(t *testing.T) {
	d := newDriver(t, 3)
	raw := func(base int64, epoch raft.Epoch, sequence int32) []byte {
		b, err := record.NewBuilder(0, record.None).Producer(9, 0, sequence).Append(0, []byte("k"), nil).Build(base, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	d.respond(d.follow(6), 6, join(raw(0, 6, 0), raw(1, 6, 1), raw(2, 6, 2)), 1)
	to := d.follow(7)
	d.sends = nil
	d.step(Fetched{Correlation: to.Correlation, Response: raft.FetchResponse{
		Header: raft.Header{Epoch: 7, Leader: 1}, HighWatermark: 1, Diverging: &raft.OffsetAndEpoch{Offset: 2, Epoch: 6},
	}})
	if end := d.r.Status().LogEnd.Offset; end != 2 {
		t.Fatalf("log end %d, want 2", end)
	}
	if v := d.r.producers.Check(d.now, state.Batch{ProducerID: 9, BaseSequence: 2, Records: 1}).Verdict; v != state.Accept {
		t.Errorf("the batch that was cut off is judged %v, want to be accepted again", v)
	}
	if v := d.r.producers.Check(d.now, state.Batch{ProducerID: 9, BaseSequence: 1, Records: 1}).Verdict; v != state.Duplicate {
		t.Errorf("the batch that stayed is judged %v, want to be a duplicate", v)
	}
}

func TestST26UnknownControlRecordIsFatal(t *testing.T) {
	d := newDriver(t, 3)
	to := d.follow(6)
	unknown := record.EncodeControls(0, 6, 0, record.Control{Type: 99})
	out := d.r.Step(d.now, Fetched{Correlation: to.Correlation, Records: unknown, Response: raft.FetchResponse{Header: raft.Header{Epoch: 6, Leader: 1}}})
	if out.Fatal == nil || out.Fatal.Reason != raft.FatalReason(storage.UnknownRecord) {
		t.Fatalf("got %+v, want UNKNOWN_RECORD", out.Fatal)
	}
	if want := "offset 0: record is not known: control type 99"; !strings.Contains(out.Fatal.Message, want) {
		t.Errorf("got %q, want %q", out.Fatal.Message, want)
	}
	if end := d.r.log.End(); end != 0 {
		t.Errorf("the log ends at %d: it was appended", end)
	}
}

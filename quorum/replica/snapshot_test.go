package replica

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/state"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// reopenWith starts the replica again under other options.
func (d *driver) reopenWith(segmentBytes int64, s Snapshots) {
	d.t.Helper()
	d.storage.SegmentBytes, d.snapshots = segmentBytes, s
	d.reopen()
}

// fill appends n batches of producer 5, from that sequence on, all of the same key.
func (d *driver) fill(sequence int32, n int) {
	d.t.Helper()
	for i := range int32(n) {
		if got := answer[ProduceResult](d, d.produce(d.batch(5, sequence+i, 1), 0)); got.Error != raft.NoError {
			d.t.Fatalf("append %d: %+v", i, got)
		}
	}
}

func TestSnapshotsAreMadeBySizeAndTheLogIsCleaned(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(2000, Snapshots{Bytes: 3000, RetentionBytes: 1})
	d.pass(10 * time.Second)
	d.fill(0, 100)
	s := d.r.Snapshots()
	if s.Newest.ID.Offset == 0 || s.Count != 1 || s.LogBytes >= 3000 {
		t.Fatalf("after 100 batches: %+v", s)
	}
	if start := d.r.Dir().Log.Start(); start == 0 || start > s.Newest.ID.Offset {
		t.Errorf("the log starts at %d, the snapshot ends at %d", start, s.Newest.ID.Offset)
	}
	// To a client it is one topic that begins at 0, in which every key has its newest record.
	id := d.id()
	d.step(ListOffsets{ID: id, LeaderEpoch: -1, Timestamp: Earliest})
	if got := answer[ListOffsetsResult](d, id); got.Offset != 0 {
		t.Errorf("the earliest offset is %d, want 0", got.Offset)
	}
	records := 0
	for at := int64(0); at < d.r.HighWatermark(); {
		got := answer[ReadResult](d, d.read(at, 1, 0))
		if got.Error != raft.NoError || got.LogStart != 0 || len(got.Records) == 0 {
			t.Fatalf("read at %d: %+v", at, got)
		}
		for b, err := range record.All(got.Records) {
			if err != nil {
				t.Fatal(err)
			}
			if at = b.NextOffset(); !b.IsControl() {
				records += int(b.Count)
			}
		}
	}
	if records == 0 || records > 40 {
		t.Errorf("read %d records of one key that was written 100 times", records)
	}
	// What the snapshot has swallowed is still known of its producer, also after a restart.
	for range 2 {
		if got := answer[ProduceResult](d, d.produce(d.batch(5, 97, 1), 0)); got.Error != raft.NoError {
			t.Errorf("a repeated batch: %+v, want success", got)
		}
		d.reopen()
		d.pass(10 * time.Second)
	}
	if got := d.r.Snapshots(); got.Newest.ID != s.Newest.ID {
		t.Errorf("a restart made %+v of %+v", got.Newest, s.Newest)
	}
}

func TestST15SnapshotsAreMadeByAgeIfThereIsAnythingNew(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Interval: time.Hour})
	d.pass(10 * time.Second)
	d.fill(0, 1)
	d.pass(59 * time.Minute)
	if s := d.r.Snapshots(); s.Count != 0 {
		t.Fatalf("too early: %+v", s)
	}
	d.pass(2 * time.Minute)
	first := d.r.Snapshots()
	if first.Newest.ID.Offset != d.r.HighWatermark() {
		t.Fatalf("after an hour: %+v", first)
	}
	d.pass(24 * time.Hour)
	if s := d.r.Snapshots(); s != first {
		t.Errorf("with nothing new %+v became %+v", first, s)
	}
	d.produce(d.batch(-1, -1, 1), 0)
	if s := d.r.Snapshots(); s.Newest.ID.Offset != d.r.HighWatermark() {
		t.Errorf("an append a day later: %+v", s)
	}
}

// TestTheAgeOfASnapshotOutlivesTheProcess: what it found at its start is as old as the last record in it, never younger than 0.
func TestTheAgeOfASnapshotOutlivesTheProcess(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Bytes: 500})
	age := func() time.Duration { s := d.r.Snapshots(); return s.Age + time.Duration(d.now-s.At) }
	d.pass(10 * time.Second)
	d.fill(0, 10) // of the calendar's first moment
	d.wall = 5 * time.Hour
	if got := age(); got < 0 || got > time.Second {
		t.Errorf("just made, it is %v old", got)
	}
	made := d.r.Snapshots().Newest.ID
	for _, wall := range []time.Duration{5 * time.Hour, -time.Hour} {
		d.wall = wall
		d.reopenWith(0, Snapshots{}) // no more are made
		if got := age(); got != max(0, wall) || d.r.Snapshots().Newest.ID != made {
			t.Errorf("%v after its last record a process finds it to be %v old", wall, got)
		}
	}
	d.pass(time.Minute)
	if got := age(); got != time.Minute {
		t.Errorf("a minute later it is %v old", got)
	}
}

// TestCompactionForgetsExpiredProducers: of each producer that is remembered a checkpoint keeps the last batches, without
// records if need be. Of those that have expired it keeps none: however many come and go, it does not grow.
func TestCompactionForgetsExpiredProducers(t *testing.T) {
	d := newDriver(t, 1) // producers expire after an hour
	d.reopenWith(0, Snapshots{Interval: 30 * time.Minute})
	d.pass(10 * time.Second)
	const rounds = 200
	var sizes []int64
	most := 0
	for i := range int64(rounds) {
		if got := answer[ProduceResult](d, d.produce(d.batch(1000+i, 0, 1), 0)); got.Error != raft.NoError {
			t.Fatalf("append of producer %d: %+v", i, got)
		}
		d.pass(10 * time.Minute)
		if d.r.Snapshots().Count == 0 {
			continue
		}
		kept := producersOf(t, d)
		most = max(most, len(kept))
		sizes = append(sizes, d.r.Snapshots().Newest.Size)
		// Those of the hour before it was made are there, and the newest record's.
		for id := range kept {
			if age := time.Duration(1000+i-id) * 10 * time.Minute; age > 2*time.Hour {
				t.Fatalf("%v after its only batch, producer %d is still in the checkpoint", age, id)
			}
		}
	}
	early, late := slices.Max(sizes[:20]), slices.Max(sizes)
	t.Logf("%d producers in %v: at most %d in a checkpoint, of at most %d bytes early and %d later", rounds, rounds*10*time.Minute, most, early, late)
	if most < 6 {
		t.Errorf("at most %d producers were in a checkpoint: the living ones were forgotten, too", most)
	}
	if late > early+200 {
		t.Errorf("the checkpoint grew from %d to %d bytes", early, late)
	}
	// After a start from the checkpoint, an expired producer is unknown, and the retry of one that lives is recognised.
	d.pass(30 * time.Minute)
	last := answer[ProduceResult](d, d.produce(d.batch(1000+rounds-1, 0, 1), 0))
	d.reopen()
	d.pass(10 * time.Second)
	if again := answer[ProduceResult](d, d.produce(d.batch(1000+rounds-1, 0, 1), 0)); again.Error != raft.NoError || again.BaseOffset != last.BaseOffset {
		t.Errorf("a retry was answered with %+v, before that with %+v", again, last)
	}
	if got := answer[ProduceResult](d, d.produce(d.batch(1000, 1, 1), 0)); got.Error != raft.UnknownProducerID {
		t.Errorf("the first producer went on: %+v, want UNKNOWN_PRODUCER_ID", got)
	}
}

// producersOf are the producers of which the newest checkpoint has batches.
func producersOf(t *testing.T, d *driver) map[int64]bool {
	t.Helper()
	info := d.r.Snapshots().Newest
	content, _, err := d.r.Dir().ReadCheckpoint(nil, info.ID, 0, int(info.Size))
	if err != nil {
		t.Fatal(err)
	}
	kept := map[int64]bool{}
	for b, err := range record.All(content) {
		if err != nil {
			t.Fatal(err)
		}
		if b.ProducerID >= 0 && !b.IsControl() {
			kept[b.ProducerID] = true
		}
	}
	return kept
}

func TestASnapshotIsMadeAtWhatIsCommittedAndFlushed(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Bytes: 500})
	d.pass(10 * time.Second)
	d.hold = true
	for i := range int32(20) {
		d.produce(d.batch(5, i, 1), 0)
	}
	if len(d.jobs) > 0 {
		t.Fatal("a snapshot was begun of what is not on disk")
	}
	d.release()
	if s := d.r.Snapshots(); s.Newest.ID.Offset != d.r.HighWatermark() {
		t.Errorf("after the flush: %+v, want one up to %d", s, d.r.HighWatermark())
	}
}

// What a large snapshot costs is spread over half as many bytes of log.
func TestALargeSnapshotIsNotMadeAnewForLittle(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Bytes: 1000})
	d.pass(10 * time.Second)
	for i := range 40 {
		raw, err := record.NewBuilder(0, record.None).Append(0, fmt.Appendf(nil, "key-%d", i), make([]byte, 1000)).Build(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := CheckProduce(raw, record.Keyed, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		d.produce(b, 0)
	}
	large := d.r.Snapshots()
	if large.Newest.Size < 20_000 {
		t.Fatalf("the snapshot has %d bytes", large.Newest.Size)
	}
	made := 0
	for i := range int32(200) {
		d.fill(i, 1)
		if s := d.r.Snapshots(); s.Newest.ID != large.Newest.ID {
			large = s
			made++
		}
	}
	if made > 1 { // of some 16 000 bytes
		t.Errorf("%d snapshots were made, of %d bytes each", made, large.Newest.Size)
	}
}

// A full disk is no reason to end: the snapshot is tried again when there may be room.
func TestAFullDiskPutsASnapshotOff(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Bytes: 3000})
	d.pass(10 * time.Second)
	d.hold = true
	for i := range int32(40) {
		d.produce(d.batch(5, i, 1), 0)
	}
	for d.flush != nil {
		f := d.flush
		d.flush = nil
		d.step(Flushed{Flush: f, Err: f.Run()})
	}
	if len(d.jobs) != 1 {
		t.Fatalf("%d jobs, want one snapshot", len(d.jobs))
	}
	d.pass(2 * time.Second) // the file committed is written
	leave := func(room int64) {
		const plenty = 1 << 40
		d.fs.SetCapacity(plenty)
		free, err := d.fs.FreeSpace("/")
		if err != nil {
			t.Fatal(err)
		}
		d.fs.SetCapacity(plenty - free + room)
	}
	leave(0)
	d.hold = false
	d.release()
	if s := d.r.Snapshots(); s.Count != 0 {
		t.Fatalf("on a full disk: %+v", s)
	}
	d.ran = 0
	if d.pass(30 * time.Second); d.ran != 0 {
		t.Errorf("%d attempts within half a minute, with no more room than before", d.ran)
	}
	for i := range int64(300) { // others let go of a little, and take it again, all the time
		leave(i % 2 * 500)
		d.pass(100 * time.Millisecond)
	}
	if d.ran == 0 || d.ran > 30/5+1 {
		t.Errorf("%d attempts within half a minute, with a little more room now and then: want some, but at most one in 5 s", d.ran)
	}
	leave(0)
	d.pass(5 * time.Second)
	leave(1 << 20)
	d.pass(5 * time.Second)
	if s := d.r.Snapshots(); s.Newest.ID.Offset == 0 {
		t.Errorf("5 s after there was room again: %+v", s)
	}
}

// leaderSnapshot is the bytes of a snapshot that a leader of epoch 6 with a producer might have.
func leaderSnapshot(t *testing.T) (id raft.OffsetAndEpoch, content []byte) {
	t.Helper()
	fs := vfs.NewMem()
	voters, _ := raft.NewVoterSet(raft.Voter{Key: self, KRaft: raft.VersionRange{Max: 1}, Endpoints: endpoints(0)}, raft.Voter{Key: raft.ReplicaKey{ID: 1, DirectoryID: raft.UUID{1}}, KRaft: raft.VersionRange{Max: 1}, Endpoints: endpoints(1)})
	if err := storage.Format(fs, "/data", storage.FormatOptions{ClusterID: "c", NodeID: 0, KRaftVersion: 1, InitialVoters: voters}); err != nil {
		t.Fatal(err)
	}
	dir, err := storage.Open(fs, "/data", storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Abandon()
	opening := record.EncodeControl(0, 6, 0, raft.LeaderChange{Leader: 1}, raft.KRaftVersion{Version: 1}, raft.Voters{Set: voters})
	if err := dir.Log.Append(0, opening); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		raw, err := record.NewBuilder(0, record.None).Producer(9, 0, int32(i)).Append(0, fmt.Appendf(nil, "k%d", i%3), fmt.Appendf(nil, "%d", i)).Build(int64(3+i), 6)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Log.Append(0, raw); err != nil {
			t.Fatal(err)
		}
	}
	end, err := dir.Log.Flush()
	if err != nil {
		t.Fatal(err)
	}
	c, err := dir.BeginCompaction(storage.CompactOptions{UpTo: end})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	content, _, err = dir.ReadCheckpoint(nil, info.ID, 0, int(info.Size))
	if err != nil {
		t.Fatal(err)
	}
	return info.ID, content
}

// offer answers the Fetch in flight with a snapshot's id.
func (d *driver) offer(to raft.Send, epoch raft.Epoch, id raft.OffsetAndEpoch) {
	d.t.Helper()
	d.sends = nil
	d.step(Fetched{Correlation: to.Correlation, Response: raft.FetchResponse{
		Header: raft.Header{Epoch: epoch, Leader: 1, LeaderEndpoints: endpoints(1)}, HighWatermark: id.Offset, Snapshot: &id,
	}})
}

// piece answers the FetchSnapshot in flight with some of the content.
func (d *driver) piece(epoch raft.Epoch, id raft.OffsetAndEpoch, content []byte, size int) (more bool) {
	d.t.Helper()
	if len(d.sends) == 0 {
		return false
	}
	last := d.sends[len(d.sends)-1]
	r, ok := last.Request.(raft.FetchSnapshotRequest)
	if !ok {
		return false
	}
	d.sends = nil
	d.step(FetchedSnapshot{Correlation: last.Correlation, Data: content[r.Position:min(r.Position+int64(size), int64(len(content)))], Response: raft.FetchSnapshotResponse{
		Header: raft.Header{Epoch: epoch, Leader: 1, LeaderEndpoints: endpoints(1)}, Snapshot: id, Size: int64(len(content)), Position: r.Position,
	}})
	return r.Position+int64(size) < int64(len(content))
}

func TestASnapshotOfTheLeaderReplacesTheLog(t *testing.T) {
	id, content := leaderSnapshot(t)
	for _, size := range []int{1, 100, len(content) - 1, len(content), len(content) + 1} { // ST-10
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			d := newDriver(t, 3)
			waiting := d.read(0, 1, time.Minute)
			d.offer(d.follow(6), 6, id)
			for d.piece(6, id, content, size) {
			}
			st := d.r.Status()
			if st.LogStart != id.Offset || st.LogEnd != id || st.HighWatermark != id.Offset || d.r.HighWatermark() != id.Offset {
				t.Fatalf("log [%d, %v), high watermark %d, shown %d; want all to be %v", st.LogStart, st.LogEnd, st.HighWatermark, d.r.HighWatermark(), id)
			}
			if f := d.fetch().Request.(raft.FetchRequest); f.Offset != id.Offset || f.LastFetchedEpoch != id.Epoch {
				t.Errorf("fetches on with %+v", f)
			}
			if got := answer[ReadResult](d, waiting); got.Error != raft.NoError || len(got.Records) == 0 {
				t.Errorf("a read that waited for records: %+v", got)
			}
			if v := d.r.producers.Check(d.now, state.Batch{ProducerID: 9, BaseSequence: 29, Records: 1}).Verdict; v != state.Duplicate {
				t.Errorf("the producer's last batch is judged %v, want a duplicate", v)
			}
			// A follower of ours could have it from here.
			if got := d.r.served(id, 0, 1<<20); !bytes.Equal(got.Data, content) || got.Size != int64(len(content)) || got.Bytes != len(content) {
				t.Errorf("serves %d bytes of %d: %+v", len(got.Data), got.Size, got.FetchSnapshotResponse)
			}
			d.reopen()
			if st := d.r.Status(); st.LogStart != id.Offset || st.LogEnd != id {
				t.Errorf("after a restart the log is [%d, %v)", st.LogStart, st.LogEnd)
			}
		})
	}
}

// served is what a peer's FetchSnapshot is answered with once the core has granted it.
func (r *Replica) served(id raft.OffsetAndEpoch, position int64, maxBytes int) SnapshotResult {
	r.answerSnapshot(1, raft.FetchSnapshotResponse{Header: raft.Header{Epoch: 6}, Snapshot: id, Position: position, Bytes: maxBytes})
	last := r.out.Answers[len(r.out.Answers)-1]
	r.out = Output{}
	return last.Result.(SnapshotResult)
}

// A peer gets the same bytes whether they are read for it or left in place, and hears why it gets none.
func TestPiecesOfASnapshotAreServed(t *testing.T) {
	id, content := leaderSnapshot(t)
	d := newDriver(t, 3)
	d.offer(d.follow(6), 6, id)
	for d.piece(6, id, content, len(content)) {
	}
	end := int64(len(content))
	for _, beside := range []bool{false, true} {
		d.r.cfg.Beside = beside
		for _, test := range []struct {
			id       raft.OffsetAndEpoch
			position int64
			maxBytes int
			want     []byte
			code     raft.ErrorCode
		}{
			{id, 0, 1 << 30, content, raft.NoError},
			{id, 7, 100, content[7:107], raft.NoError},
			{id, end - 1, 100, content[end-1:], raft.NoError},
			{id, 0, 0, []byte{}, raft.NoError},
			{id, end, 100, nil, raft.PositionOutOfRange},
			{id, -1, 100, nil, raft.PositionOutOfRange},
			{raft.OffsetAndEpoch{Offset: id.Offset + 1, Epoch: id.Epoch}, 0, 100, nil, raft.SnapshotNotFound},
			{raft.OffsetAndEpoch{}, 0, 100, nil, raft.SnapshotNotFound},
		} {
			got := d.r.served(test.id, test.position, test.maxBytes)
			if left := got.Section; left != nil {
				if !beside {
					t.Fatal("left in place for a driver that reads nothing beside")
				}
				data, err := io.ReadAll(left)
				left.Close()
				if got.Data = data; err != nil {
					t.Fatal(err)
				}
			}
			want := SnapshotResult{Data: got.Data, Section: got.Section, FetchSnapshotResponse: raft.FetchSnapshotResponse{Header: raft.Header{Error: test.code, Epoch: 6}}}
			if test.code == raft.NoError {
				want.Snapshot, want.Position, want.Size, want.Bytes = id, test.position, end, len(test.want)
			}
			if diff := cmp.Diff(want.FetchSnapshotResponse, got.FetchSnapshotResponse); diff != "" || !bytes.Equal(got.Data, test.want) {
				t.Errorf("%v at %d, %d bytes: got %d bytes, want %d\n%s", test.id, test.position, test.maxBytes, len(got.Data), len(test.want), diff)
			}
		}
	}
}

// A snapshot that has rotted on the leader's disk is found as soon as somebody downloads it. The next process makes another.
func TestARottenSnapshotIsNotServedForEver(t *testing.T) {
	d := newDriver(t, 1)
	d.reopenWith(0, Snapshots{Bytes: 3000})
	d.pass(10 * time.Second)
	d.fill(0, 60) // in one segment: the log reaches down to 0
	newest := d.r.Snapshots().Newest
	if newest.ID.Offset == 0 || d.r.Dir().Log.Start() > 0 {
		t.Fatalf("snapshot %+v, the log starts at %d", newest, d.r.Dir().Log.Start())
	}
	ask := func(position int64) Output {
		return d.r.Step(d.now, Core{Event: raft.Inbound{ID: d.id(), Request: raft.FetchSnapshotRequest{
			Replica: raft.ReplicaKey{ID: 9, DirectoryID: raft.UUID{9}}, Epoch: d.r.Status().Election.Epoch, Snapshot: newest.ID, Position: position, MaxBytes: 100,
		}}})
	}
	for _, o := range []Output{ask(0), ask(100), ask(0)} { // that it is whole is looked up once
		d.take(o)
	}
	if d.now = d.now.Add(time.Minute); d.ran == 0 {
		t.Fatal("nobody looked at what is served")
	}
	ran := d.ran
	if d.take(ask(100)); d.ran != ran {
		t.Error("it is looked at for each piece")
	}
	if err := d.fs.Rot(fmt.Sprintf("/data/__cluster_metadata-0/%020d-%010d.checkpoint", newest.ID.Offset, newest.ID.Epoch), newest.Size/2); err != nil {
		t.Fatal(err)
	}
	o := ask(0)
	if len(o.Jobs) != 1 {
		t.Fatalf("%d jobs, want one", len(o.Jobs))
	}
	o = d.r.Step(d.now, Done{Job: o.Jobs[0], Err: o.Jobs[0].Run()})
	if o.Fatal == nil || o.Fatal.Reason != raft.FatalReason(storage.LogCorrupt) {
		t.Fatalf("fatal %+v, want LOG_CORRUPT", o.Fatal)
	}
	d.r.Abandon()
	d.open()
	d.pass(10 * time.Second)
	if s := d.r.Snapshots(); s.Newest.ID.Offset < newest.ID.Offset {
		t.Errorf("the next process has %+v, want one up to %d at least", s.Newest, newest.ID.Offset)
	}
}

func TestADamagedSnapshotIsNotBelieved(t *testing.T) {
	id, content := leaderSnapshot(t)
	content[len(content)/2] ^= 1
	d := newDriver(t, 3)
	d.offer(d.follow(6), 6, id)
	for d.piece(6, id, content, 1000) {
	}
	if st := d.r.Status(); st.LogEnd.Offset != 0 || st.Download != nil || len(d.dropped) != 1 {
		t.Errorf("log end %v, download %+v, dropped %v", st.LogEnd, st.Download, d.dropped)
	}
	d.pass(time.Second)
	if f := d.fetch().Request.(raft.FetchRequest); f.Offset != 0 {
		t.Errorf("fetches %+v", f)
	}
}

// A download that is given up while it is checked leaves nothing behind, and holds up the next one but for a moment.
func TestADownloadIsGivenUpWhileItIsChecked(t *testing.T) {
	id, content := leaderSnapshot(t)
	d := newDriver(t, 3)
	d.offer(d.follow(6), 6, id)
	d.hold = true
	for d.piece(6, id, content, 1000) {
	}
	if len(d.jobs) != 1 {
		t.Fatalf("%d jobs, want one", len(d.jobs))
	}
	d.offer(d.follow(7), 7, id) // another epoch
	for d.piece(7, id, content, 1000) {
	}
	if len(d.jobs) != 1 {
		t.Fatalf("%d jobs: a second download began beside the first", len(d.jobs))
	}
	d.release()
	if all := d.r.Dir().Checkpoints(); len(all) != 0 || d.r.Status().LogEnd.Offset != 0 {
		t.Fatalf("what was given up was installed: %+v", all)
	}
	d.hold = false
	d.pass(1100 * time.Millisecond)
	d.offer(d.fetch(), 7, id)
	for d.piece(7, id, content, 1000) {
	}
	if st := d.r.Status(); st.LogEnd != id {
		t.Errorf("the second download: %+v", st.LogEnd)
	}
}

func TestAFullDiskPutsADownloadOff(t *testing.T) {
	id, content := leaderSnapshot(t)
	d := newDriver(t, 3)
	d.offer(d.follow(6), 6, id)
	free, _ := d.fs.FreeSpace("/")
	d.fs.SetCapacity(1)
	d.piece(6, id, content, 100)
	d.piece(6, id, content, 100) // had been asked for
	if st := d.r.Status(); st.Download != nil {
		t.Errorf("still downloads: %+v", st.Download)
	}
	d.fs.SetCapacity(free)
	d.pass(1100 * time.Millisecond)
	d.offer(d.fetch(), 6, id)
	for d.piece(6, id, content, 100) {
	}
	if st := d.r.Status(); st.LogEnd != id {
		t.Errorf("with room again the log ends at %v, want %v", st.LogEnd, id)
	}
}

func TestOpaqueTopicsLearnSnapshotsOfOthers(t *testing.T) {
	d := newDriver(t, 3)
	d.reopenWith(0, Snapshots{Opaque: true, Bytes: 200})
	d.respond(d.follow(6), 6, join(logged(t, 0, 6, 6, 6)...), 3)
	d.respond(d.fetch(), 6, nil, 3)
	probe := d.fetch()
	if f := probe.Request.(raft.FetchRequest); f.Offset != 0 || f.Replica.ID != raft.None {
		t.Fatalf("asks %+v, want for offset 0, as nobody", f)
	}
	d.respond(probe, 6, join(logged(t, 0, 6)...), 3) // the leader has no snapshot
	if f := d.fetch().Request.(raft.FetchRequest); f.Offset != 3 || d.r.Status().LogEnd.Offset != 3 {
		t.Errorf("goes on with %+v", f)
	}
	if all := d.r.Dir().Checkpoints(); len(all) != 0 {
		t.Errorf("has made %v", all)
	}
}

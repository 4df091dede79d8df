package state

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

func batch(id int64, epoch int16, sequence, records int32) Batch {
	return Batch{ProducerID: id, ProducerEpoch: epoch, BaseSequence: sequence, Records: records}
}

func at(b Batch, base int64) Batch {
	b.BaseOffset, b.LastOffset = base, base+int64(b.Records)-1
	return b
}

// appended is a memory that has seen these batches one after the other from offset 0.
func appended(o Options, batches ...Batch) *Producers {
	p := New(o, 0)
	base := int64(0)
	for _, b := range batches {
		p.Append(0, at(b, base))
		base += int64(b.Records)
	}
	return p
}

func TestCheck(t *testing.T) {
	six := []Batch{batch(7, 0, 0, 1), batch(7, 0, 1, 1), batch(7, 0, 2, 1), batch(7, 0, 3, 1), batch(7, 0, 4, 1), batch(7, 0, 5, 3)}
	tests := []struct {
		name string
		log  []Batch
		send Batch
		want Decision
	}{
		{"without producer id everything is new", six, batch(NoProducer, -1, -1, 1), Decision{}},
		{"unknown producer begins at 0", nil, batch(7, 0, 0, 4), Decision{}},
		{"unknown producer begins elsewhere", nil, batch(7, 0, 1, 1), Decision{Verdict: Refuse, Error: raft.UnknownProducerID}},
		{"next in sequence", six, batch(7, 0, 8, 1), Decision{}},
		{"the newest again", six, batch(7, 0, 5, 3), Decision{Verdict: Duplicate, BaseOffset: 5, LastOffset: 7}},
		{"the fifth newest again", six, batch(7, 0, 1, 1), Decision{Verdict: Duplicate, BaseOffset: 1, LastOffset: 1}},
		{"the sixth newest again", six, batch(7, 0, 0, 1), Decision{Verdict: Refuse, Error: raft.OutOfOrderSequence}},
		{"same first, other last sequence", six, batch(7, 0, 5, 2), Decision{Verdict: Refuse, Error: raft.OutOfOrderSequence}},
		{"a gap", six, batch(7, 0, 9, 1), Decision{Verdict: Refuse, Error: raft.OutOfOrderSequence}},
		{"newer epoch begins at 0", six, batch(7, 1, 0, 1), Decision{}},
		{"newer epoch begins elsewhere", six, batch(7, 1, 8, 1), Decision{Verdict: Refuse, Error: raft.OutOfOrderSequence}},
		{"older epoch", []Batch{batch(7, 2, 0, 1)}, batch(7, 1, 1, 1), Decision{Verdict: Refuse, Error: raft.InvalidProducerEpoch}},
		{"sequences go round", []Batch{batch(7, 0, math.MaxInt32-1, 3)}, batch(7, 0, 1, 1), Decision{}},
		{"sequences go round at the border", []Batch{batch(7, 0, math.MaxInt32-1, 2)}, batch(7, 0, 0, 1), Decision{}},
		{"a duplicate that went round", []Batch{batch(7, 0, math.MaxInt32-1, 3)}, batch(7, 0, math.MaxInt32-1, 3), Decision{Verdict: Duplicate, BaseOffset: 0, LastOffset: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := appended(Options{}, test.log...).Check(0, test.send)
			if (got.Verdict == Refuse) != (got.Message != "") {
				t.Errorf("a refusal, and only a refusal, has a message; got %+v", got)
			}
			got.Message = ""
			if got != test.want {
				t.Errorf("Check(%+v) = %+v, want %+v", test.send, got, test.want)
			}
		})
	}
}

func TestProposalsCountBeforeTheyAreAppended(t *testing.T) {
	p := appended(Options{}, batch(7, 0, 0, 2))
	p.Propose(11, batch(7, 0, 2, 1))
	p.Propose(12, batch(7, 0, 3, 1))
	if d := p.Check(0, batch(7, 0, 2, 1)); d.Verdict != DuplicateInFlight || d.Original != 11 {
		t.Errorf("retry of a batch in flight: got %+v, want duplicate of request 11", d)
	}
	if d := p.Check(0, batch(7, 0, 4, 1)); d.Verdict != Accept {
		t.Errorf("third in flight: got %+v, want Accept", d)
	}
	p.Append(0, at(batch(7, 0, 2, 1), 2))
	p.Drop(11, 7)
	p.Drop(12, 7) // refused
	if d := p.Check(0, batch(7, 0, 3, 1)); d.Verdict != Accept {
		t.Errorf("after the refusal of 3 it may come again: got %+v", d)
	}
	if len(p.pending) != 0 {
		t.Errorf("proposals left behind: %v", p.pending)
	}
}

func TestExpiryGoesByOwnClock(t *testing.T) {
	p := New(Options{Expiration: time.Hour}, 0)
	p.Append(0, at(batch(1, 0, 0, 1), 0))
	p.Append(raft.Instant(30*time.Minute), at(batch(2, 0, 0, 1), 1))
	now := raft.Instant(time.Hour)
	if d := p.Check(now, batch(1, 0, 1, 1)); d.Error != raft.UnknownProducerID {
		t.Errorf("silent for an hour: got %+v, want UNKNOWN_PRODUCER_ID", d)
	}
	if d := p.Check(now, batch(2, 0, 1, 1)); d.Verdict != Accept {
		t.Errorf("silent for half an hour: got %+v, want Accept", d)
	}
}

func TestNumberOfProducersIsBounded(t *testing.T) {
	p := New(Options{MaxProducers: 3}, 0)
	for id := range int64(10) {
		p.Append(0, at(batch(id, 0, 0, 1), id))
	}
	if p.Len() != 3 {
		t.Fatalf("remembered %d producers, want 3", p.Len())
	}
	if d := p.Check(0, batch(7, 0, 1, 1)); d.Verdict != Accept {
		t.Errorf("one of the newest three: %+v", d)
	}
}

func TestTruncateTellsWhenItCannot(t *testing.T) {
	p := New(Options{MaxUndo: 4}, 0)
	for i := range int64(10) {
		p.Append(0, at(batch(1, 0, int32(i), 1), i))
	}
	if p.Truncate(2) {
		t.Error("Truncate(2) with four batches of undo after offset 10 reported true")
	}
	p.Committed(9)
	if p.Truncate(8) {
		t.Error("Truncate below the high watermark reported true")
	}
	if !p.Truncate(9) {
		t.Error("Truncate at the high watermark reported false")
	}
}

// boundary draws a batch's base offset, or the log's end, at or above from.
func boundary(r *rand.Rand, log []Batch, from int64) int64 {
	var all []int64
	for _, b := range log {
		if b.LastOffset >= from {
			all = append(all, b.BaseOffset, b.LastOffset+1)
		}
	}
	if len(all) == 0 {
		return from
	}
	return all[r.IntN(len(all))]
}

// The memory after any appends and truncations is that of a replica that read the remaining log from its start.
func TestTruncationEqualsRebuild(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := New(Options{}, 0)
		var log []Batch
		end, committed := int64(0), int64(0)
		for range 200 {
			switch {
			case r.IntN(10) > 0 || end == committed:
				b := batch(int64(r.IntN(4)), int16(r.IntN(2)), int32(r.IntN(6)), int32(1+r.IntN(3)))
				b = at(b, end)
				p.Append(0, b)
				log, end = append(log, b), b.LastOffset+1
			case r.IntN(3) == 0:
				committed = boundary(r, log, committed)
				p.Committed(committed)
			default:
				cut := boundary(r, log, committed)
				log = slices.DeleteFunc(log, func(b Batch) bool { return b.BaseOffset >= cut })
				end = cut
				if !p.Truncate(cut) {
					t.Fatalf("seed %d: Truncate(%d) with high watermark %d reported false", seed, cut, committed)
				}
			}
			fresh := New(Options{}, 0)
			for _, b := range log {
				fresh.Append(0, b)
			}
			for id := range int64(4) {
				for epoch := range int16(2) {
					for sequence := range int32(9) {
						ask := batch(id, epoch, sequence, 1)
						if got, want := p.Check(0, ask), fresh.Check(0, ask); got != want {
							t.Fatalf("seed %d, log of %d: Check(%+v) = %+v, a rebuilt memory says %+v", seed, len(log), ask, got, want)
						}
					}
				}
			}
		}
	}
}

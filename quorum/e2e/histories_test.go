//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

var (
	histories   = flag.Int("histories", 20, "random histories of TestClientsSeeTheCompactedTopic")
	historySeed = flag.Uint64("history", 0, "seed of the first; 0: a new one, which is printed")
	kcats       = flag.Int("kcats", 5, "how many of them kcat reads, too, where it is installed")
)

// Puts, deletions, retries of what was appended already, leaders that are killed or stopped, and snapshots between any two
// of these: after ten snapshots clients that read from the beginning, at any member, see the newest record of each key where
// it was appended, deletions too, and behind the snapshot all records.
func TestClientsSeeTheCompactedTopic(t *testing.T) {
	if *historySeed == 0 {
		*historySeed = rand.Uint64N(1 << 32)
	}
	var sum figures
	t.Run("histories", func(t *testing.T) {
		for i := range *histories {
			seed := *historySeed + uint64(i)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				h := newHistory(t, seed, &sum)
				h.play()
				h.read(i < *kcats)
			})
		}
	})
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Logf("e2e: kcat is not installed: nothing is compared with what librdkafka reads (%v)", err)
	}
	t.Logf("e2e: histories=%d from -history %d: puts=%d deletions=%d retries=%d kills=%d stops=%d snapshots=%d; read by franz-go %d times, by kcat %d times, %d records in all: as the model",
		*histories, *historySeed, sum.puts.Load(), sum.deletions.Load(), sum.retries.Load(), sum.kills.Load(), sum.stops.Load(), sum.snapshots.Load(),
		sum.reads.Load(), sum.kcats.Load(), sum.records.Load())
}

type figures struct {
	puts, deletions, retries, kills, stops, snapshots, reads, kcats, records atomic.Int64
}

// history is one quorum and all that was appended to it.
type history struct {
	*quorum
	seed   uint64
	dice   *rand.Rand
	sum    *figures
	client *kgo.Client

	keys, valueSize int
	forgets         bool // deletions, soon

	written  int
	log      map[int64]entry // by offset: what was acknowledged
	snapshot []map[int64]bool

	// A second producer makes its batches by hand, and so can send them again.
	producer int64
	sequence int32
	sent     []batch // at most as many as are remembered
}

// entry is a record as clients see it.
type entry struct {
	offset     int64
	key, value string
	deleted    bool
}

func (e entry) String() string {
	if e.deleted {
		return fmt.Sprintf("offset %d: %s deleted", e.offset, e.key)
	}
	return fmt.Sprintf("offset %d: %s=%.20q", e.offset, e.key, e.value)
}

// batch is one that was appended.
type batch struct {
	raw    []byte
	offset int64
}

func newHistory(t *testing.T, seed uint64, sum *figures) *history {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 0))
	h := &history{seed: seed, dice: dice, sum: sum, keys: 1 + dice.IntN(40), valueSize: 1 + dice.IntN(100), log: map[int64]entry{}}
	retention, between := "86400000", 500+dice.IntN(4000)
	if dice.IntN(3) == 0 {
		h.forgets, retention = true, strconv.Itoa(1+dice.IntN(1000))
	}
	if dice.IntN(3) == 0 { // large enough for the log to be cut
		h.valueSize, between = 10_000+dice.IntN(30_000), 100_000+dice.IntN(1_000_000)
	}
	h.quorum = start(t, 3, "metadata.log.segment.bytes=1048576", "metadata.max.retention.bytes=1", "delete.retention.ms="+retention,
		"controller.quorum.election.timeout.ms=300", fmt.Sprintf("metadata.log.max.record.bytes.between.snapshots=%d", between))
	for range h.members {
		h.snapshot = append(h.snapshot, map[int64]bool{})
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	h.client = dial(t, h.bootstrap(), kgo.ProducerBatchCompression(codecs[dice.IntN(len(codecs))]))
	h.quorum.settled()
	h.introduce()
	return h
}

// play does things at random until each member has made ten snapshots.
func (h *history) play() {
	for step := 0; step < 40 || h.fewestSnapshots() < 10; step++ {
		switch h.dice.IntN(40) {
		case 0:
			h.loseLeader(step)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9:
			h.produceByHand()
		case 10, 11, 12, 13, 14, 15:
			h.sendAgain()
		default:
			h.produce()
		}
		h.noteSnapshots()
		if step > 5000 {
			h.t.Fatalf("seed %d: after %d steps %v snapshots", h.seed, step, h.snapshot)
		}
	}
	// The last record tells readers that they have read all.
	h.append(h.client, &kgo.Record{Key: []byte("end"), Value: []byte("end")})
	for _, seen := range h.snapshot {
		h.sum.snapshots.Add(int64(len(seen)))
	}
}

func (h *history) noteSnapshots() {
	for i, p := range h.members {
		if s := p.status(); s != nil && s.Snapshot != nil {
			h.snapshot[i][s.Snapshot.Offset] = true
		}
	}
}

func (h *history) fewestSnapshots() int {
	least := len(h.snapshot[0])
	for _, seen := range h.snapshot {
		least = min(least, len(seen))
	}
	return least
}

// next is a record that no other is equal to.
func (h *history) next() *kgo.Record {
	h.written++
	r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", h.dice.IntN(h.keys))}
	if h.dice.IntN(5) == 0 {
		h.sum.deletions.Add(1)
		return r
	}
	h.sum.puts.Add(1)
	r.Value = fmt.Appendf(nil, "%d-", h.written)
	for range h.dice.IntN(h.valueSize) {
		r.Value = append(r.Value, byte('!'+h.dice.IntN('~'-'!'))) // no space
	}
	return r
}

// produce has franz-go append some records; now and then the leader is killed meanwhile.
func (h *history) produce() {
	records := make([]*kgo.Record, 1+h.dice.IntN(20))
	for i := range records {
		records[i] = h.next()
	}
	var back func()
	if h.dice.IntN(60) == 0 {
		back = h.killSoon()
	}
	h.append(h.client, records...)
	if back != nil {
		back()
	}
}

func (h *history) append(client *kgo.Client, records ...*kgo.Record) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range client.ProduceSync(ctx, records...) {
		if r.Err != nil {
			h.t.Fatalf("seed %d: append: %v", h.seed, r.Err)
		}
		h.acknowledged(r.Record.Offset, r.Record)
	}
}

func (h *history) acknowledged(offset int64, r *kgo.Record) {
	h.t.Helper()
	if other, ok := h.log[offset]; ok {
		h.t.Fatalf("seed %d: offset %d is acknowledged twice, of %q and %q", h.seed, offset, other.key, r.Key)
	}
	h.log[offset] = entry{offset, string(r.Key), string(r.Value), r.Value == nil}
}

// introduce gets a producer id.
func (h *history) introduce() {
	h.t.Helper()
	request := kmsg.NewPtrInitProducerIDRequest()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if answer, err := h.client.Request(context.Background(), request); err == nil {
			if a := answer.(*kmsg.InitProducerIDResponse); a.ErrorCode == 0 {
				h.producer = a.ProducerID
				return
			}
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("seed %d: no producer id for 30 s", h.seed)
		}
	}
}

func (h *history) produceByHand() {
	h.t.Helper()
	now := time.Now().UnixMilli()
	b := record.NewBuilder(now, record.Codec(h.dice.IntN(5))).Producer(h.producer, 0, h.sequence)
	var records []*kgo.Record
	for range 1 + h.dice.IntN(5) {
		r := h.next()
		records = append(records, r)
		b.Append(now, r.Key, r.Value)
	}
	raw, err := b.Build(0, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	h.sequence += int32(len(records))
	var back func()
	if h.dice.IntN(60) == 0 {
		back = h.killSoon()
	}
	offset := h.send(raw)
	if back != nil {
		back()
	}
	for i, r := range records {
		h.acknowledged(offset+int64(i), r)
	}
	h.sent = append(h.sent, batch{raw, offset})
	h.sent = h.sent[max(0, len(h.sent)-5):]
}

// sendAgain sends a batch that was appended, maybe long ago: it stands where it stood.
func (h *history) sendAgain() {
	h.t.Helper()
	if len(h.sent) == 0 {
		return
	}
	h.sum.retries.Add(1)
	b := h.sent[h.dice.IntN(len(h.sent))]
	if offset := h.send(b.raw); offset != b.offset {
		h.t.Fatalf("seed %d: a batch of offset %d, sent again, is acknowledged at offset %d", h.seed, b.offset, offset)
	}
}

// produce is a request to append one batch.
func produce(raw []byte) kmsg.Request {
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks, request.TimeoutMillis = 12, -1, 5000
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: raw}}}}
	return pinned{request}
}

// send sends a batch until a leader acknowledges it.
func (h *history) send(raw []byte) int64 {
	h.t.Helper()
	request := produce(raw)
	deadline := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		answer, err := h.client.Request(ctx, request)
		cancel()
		if err == nil {
			p := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if p.ErrorCode == 0 {
				return p.BaseOffset
			}
			if err = kerr.ErrorForCode(p.ErrorCode); !kerr.IsRetriable(err) {
				h.t.Fatalf("seed %d: a batch by hand: %v", h.seed, err)
			}
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("seed %d: a batch by hand: %v for a minute", h.seed, err)
		}
		h.client.ForceMetadataRefresh()
		time.Sleep(10 * time.Millisecond)
	}
}

// pinned keeps a client from raising the version: newer ones name the topic by id.
type pinned struct{ *kmsg.ProduceRequest }

func (pinned) MaxVersion() int16 { return 12 }

// loseLeader kills or stops whoever leads, for a moment or until something is appended.
func (h *history) loseLeader(step int) {
	leader, _ := h.quorum.settled()
	if h.dice.IntN(2) == 0 {
		h.sum.stops.Add(1)
		leader.terminate()
	} else {
		h.sum.kills.Add(1)
		leader.kill()
	}
	if step%2 == 0 {
		h.append(h.client, h.next())
	}
	leader.start()
}

// killSoon kills the leader in a moment, and returns what waits for that and starts it again.
func (h *history) killSoon() (back func()) {
	leader, _ := h.quorum.settled()
	pause := time.Duration(h.dice.IntN(3000)) * time.Microsecond
	h.sum.kills.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(pause) // the instant is the point
		leader.kill()
	}()
	return func() {
		<-done
		leader.start()
	}
}

// read reads the whole topic at each member, with each client.
func (h *history) read(byKcat bool) {
	h.t.Helper()
	h.quorum.settled()
	for _, p := range h.members {
		h.await(fmt.Sprintf("member %d to have it all", p.id), func() bool {
			leader, _ := h.quorum.settled()
			return caughtUp(p, leader)
		})
		h.compare(p, "franz-go", func() []entry { return h.consume(p) })
		h.sum.reads.Add(1)
		kcat, err := exec.LookPath("kcat")
		if byKcat && err == nil {
			h.compare(p, "kcat", func() []entry { return h.kcat(kcat, p) })
			h.sum.kcats.Add(1)
		}
	}
}

// compare compares what was read with what the member's snapshot has to leave of it. If there was another snapshot
// meanwhile, it reads again.
func (h *history) compare(p *process, client string, read func() []entry) {
	h.t.Helper()
	var got []entry
	var snapshot int64
	h.await(fmt.Sprintf("member %d to make no snapshot while it is read", p.id), func() bool {
		before := p.status()
		got = read()
		after := p.status()
		if before == nil || after == nil {
			return false
		}
		snapshot = after.Snapshot.Offset
		return same(before.Snapshot, after.Snapshot)
	})
	h.sum.records.Add(int64(len(got)))
	newest := map[string]int64{} // below the snapshot's end
	for offset, e := range h.log {
		if offset < snapshot {
			newest[e.key] = max(newest[e.key], offset)
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(h.log)) {
		want := h.log[offset]
		if offset < snapshot && newest[want.key] != offset {
			continue
		}
		if len(got) > 0 && got[0] == want {
			got = got[1:]
			continue
		}
		if want.deleted && h.forgets && offset < snapshot {
			continue
		}
		h.t.Fatalf("seed %d: member %d, whose snapshot ends at %d, shows %s %v; want %v", h.seed, p.id, snapshot, client, first(got), want)
	}
	if len(got) > 0 {
		h.t.Fatalf("seed %d: member %d, whose snapshot ends at %d, shows %s %v, which nobody wrote there", h.seed, p.id, snapshot, client, got[0])
	}
}

func same(a, b *status.Snapshot) bool { return a != nil && b != nil && a.Offset == b.Offset }

func first(all []entry) any {
	if len(all) == 0 {
		return "the end"
	}
	return all[0]
}

// consume reads with franz-go, which the leader points to the member in the client's rack.
func (h *history) consume(p *process) (all []entry) {
	h.t.Helper()
	client := dial(h.t, []string{p.client()}, kgo.Rack(fmt.Sprintf("rack-%d", p.id)), fromStart())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(fetches.Err(), ctx.Err()); err != nil {
			h.t.Fatalf("seed %d: read member %d after %d records: %v", h.seed, p.id, len(all), err)
		}
		for _, r := range fetches.Records() {
			all = append(all, entry{r.Offset, string(r.Key), string(r.Value), r.Value == nil})
			if string(r.Key) == "end" {
				return all
			}
		}
	}
}

// kcat reads with librdkafka.
func (h *history) kcat(program string, p *process) (all []entry) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-C", "-q", "-e", "-b", p.client(), "-t", topic, "-p", "0", "-o", "beginning",
		"-X", "check.crcs=true", "-X", fmt.Sprintf("client.rack=rack-%d", p.id), "-f", `%o %k %S %s\n`).Output()
	if err != nil {
		h.t.Fatalf("seed %d: kcat at member %d: %v", h.seed, p.id, err)
	}
	for line := range strings.Lines(string(out)) {
		var e entry
		var size int
		if _, err := fmt.Sscan(line, &e.offset, &e.key, &size); err != nil {
			h.t.Fatalf("seed %d: kcat at member %d printed %.100q: %v", h.seed, p.id, line, err)
		}
		e.deleted = size < 0
		if !e.deleted {
			e.value = strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
		all = append(all, e)
	}
	return all
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The client: so many writers, each of which waits for its answer before it sends
// the next record, and pauses a little so that the machine has time for the rest.
// Together they see a gap of a few milliseconds.
const (
	writers     = 8
	pause       = 15 * time.Millisecond
	topic       = "__cluster_metadata"
	endOfStream = "end"
)

// load appends through an ordinary idempotent Kafka client until it is stopped,
// and keeps the offset of everything that was acknowledged.
type load struct {
	client *kgo.Client
	stop   chan struct{}
	group  sync.WaitGroup

	mu       sync.Mutex
	acked    [writers][]int64 // offset of each writer's n-th record
	appended int
	lastAck  time.Time
	longest  time.Duration // between two acknowledged appends since mark
	finished bool
	failed   []error // an append that ended with an error: with endless retries there is none
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// kafkaClient is a franz-go client with its defaults (idempotent, snappy, all
// retries) but for two things: the dialer, and waiting little before a retry, as
// an election here is over in milliseconds and Kafka's in seconds.
func kafkaClient(dial dialFunc, seed string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seed),
		kgo.Dialer(dial),
		kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.UnknownTopicRetries(-1),
	}, more...)...)
}

// start starts the writers. ctx must outlive them: finish lets a record that is on
// its way end, as only then is its fate known.
func (l *load) start(ctx context.Context, dial dialFunc, seed string) error {
	var err error
	if l.client, err = kafkaClient(dial, seed, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0)); err != nil {
		return err
	}
	l.stop = make(chan struct{})
	l.mark()
	for w := range writers {
		l.group.Go(func() { l.write(ctx, w) })
	}
	return nil
}

// write is one writer. A record's key is new each time, so that none hides another.
func (l *load) write(ctx context.Context, writer int) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-time.After(pause):
		}
		r := &kgo.Record{Key: key(writer, n), Value: fmt.Appendf(nil, "value %d of writer %d", n, writer)}
		err := l.client.ProduceSync(ctx, r).FirstErr()
		l.record(writer, r.Offset, err)
		if err != nil {
			return
		}
	}
}

func (l *load) record(writer int, offset int64, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if !errors.Is(err, kgo.ErrClientClosed) {
			l.failed = append(l.failed, fmt.Errorf("writer %d: %w", writer, err))
		}
		return
	}
	l.acked[writer] = append(l.acked[writer], offset)
	l.appended++
	l.longest = max(l.longest, now.Sub(l.lastAck))
	l.lastAck = now
}

func key(writer, n int) []byte { return fmt.Appendf(nil, "w%d-%07d", writer, n) }

// mark begins a new measurement of the longest gap.
func (l *load) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest, l.lastAck = 0, time.Now()
}

// longestGap is the longest time since mark in which nothing was acknowledged, the
// one that is going on included; 0 before the client started and after it finished.
func (l *load) longestGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil || l.finished {
		return 0
	}
	return max(l.longest, time.Since(l.lastAck))
}

// count is how many appends were acknowledged so far, and the first error, if any.
func (l *load) count() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appended, errors.Join(l.failed...)
}

func (l *load) close() {
	if l.client != nil {
		l.client.Close()
	}
}

// finish stops the writers, waits until each record's fate is known, and appends
// one last record behind which nothing of ours can be.
func (l *load) finish(ctx context.Context) error {
	close(l.stop)
	l.mu.Lock()
	l.finished = true
	l.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		l.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return errors.New("appends are still not answered")
	}
	return l.client.ProduceSync(ctx, &kgo.Record{Key: []byte(endOfStream), Value: []byte(endOfStream)}).FirstErr()
}

// verdict is what reading everything back showed.
type verdict struct {
	appended   int // acknowledged
	lost       int // acknowledged, and not at its offset, or not with its value
	duplicated int // stored more than once
	disordered int // a writer's record stored before the one that it followed
	failed     []error
	examples   []string // a few of the above, in words
}

func (v verdict) good() bool {
	return v.appended > 0 && v.lost == 0 && v.duplicated == 0 && v.disordered == 0 && len(v.failed) == 0
}

func (v verdict) String() string {
	s := fmt.Sprintf("%d appended, %d lost, %d duplicated, %d out of order, %d answered with an error", v.appended, v.lost, v.duplicated, v.disordered, len(v.failed))
	if len(v.failed) > 0 {
		s += ": " + v.failed[0].Error()
	}
	if len(v.examples) > 0 {
		s += "; " + strings.Join(v.examples, "; ")
	}
	return s
}

func (v *verdict) example(format string, args ...any) {
	if len(v.examples) < 5 {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// check reads the log from its beginning to the last record of this run, and compares.
func (l *load) check(ctx context.Context, dial dialFunc, seed string) (verdict, error) {
	reader, err := kafkaClient(dial, seed, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return verdict{}, err
	}
	defer reader.Close()

	stored := make(map[string][]int64)
	values := make(map[string]string)
	for end := false; !end; {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return verdict{}, fmt.Errorf("read back: %w after %d keys", err, len(stored))
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return verdict{}, fmt.Errorf("read back: %w", errs[0].Err)
		}
		for r := range fetches.RecordsAll() {
			k := string(r.Key)
			stored[k] = append(stored[k], r.Offset)
			values[k] = string(r.Value)
			end = end || k == endOfStream
		}
	}
	return l.compare(stored, values), nil
}

// compare judges what is stored, offsets and last value by key, by what was acknowledged.
func (l *load) compare(stored map[string][]int64, values map[string]string) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := verdict{appended: l.appended, failed: l.failed}
	for k, offsets := range stored {
		if len(offsets) > 1 {
			v.duplicated++
			v.example("%s is stored at offsets %v", k, offsets)
		}
	}
	for w, offsets := range l.acked {
		for n, offset := range offsets {
			k := string(key(w, n))
			if !slices.Contains(stored[k], offset) || values[k] != fmt.Sprintf("value %d of writer %d", n, w) {
				v.lost++
				v.example("%s was acknowledged at offset %d and is stored at %v with value %q", k, offset, stored[k], values[k])
			}
			if n > 0 && offset <= offsets[n-1] {
				v.disordered++
				v.example("%s is at offset %d, and the record before it at %d", k, offset, offsets[n-1])
			}
		}
	}
	return v
}

package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
)

// Record is one record of the log as a reader sees it.
type Record struct {
	Offset    int64
	Epoch     int32
	Timestamp time.Time
	Key       []byte // nil: none
	Value     []byte // nil: none (with a key: it is deleted)
}

// Log appends to and reads the log through CLIENT listeners, as any Kafka client does. Close it.
type Log struct {
	kafka *kgo.Client
	topic string
	from  kgo.Offset
	heard heard
}

// OpenLog prepares a Log; nothing is dialed yet. from is used by Read only: an offset, or one of From….
func (c *Client) OpenLog(bootstrap []string, from int64) (*Log, error) {
	l := &Log{topic: c.topic(), from: offset(from)}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap...),
		kgo.ClientID(clientID),
		kgo.DefaultProduceTopic(c.topic()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(10000),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.AllowIdempotentProduceCancellation(),    // an append ends with its context, whether it may have been made or not
		kgo.RequestRetries(math.MaxInt),             // an election takes longer than 20 of them; the caller's context ends it
		kgo.MetadataMinAge(100 * time.Millisecond),  // look for a new leader at once, not only after 2.5 s
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // an offset that does not exist is an error, not another offset
		// Control records are not shown, but without them nobody could tell that the end was reached.
		kgo.KeepControlRecords(),
		kgo.Dialer(l.heard.listen(func(ctx context.Context, _, host string) (net.Conn, error) { return c.dial(ctx, host) })),
	}
	var err error
	if l.kafka, err = kgo.NewClient(options...); err != nil {
		return nil, err
	}
	return l, nil
}

// Trouble is what a member answered last, or why it could not be reached, when nothing gets on. The Kafka client tries again
// for as long as it may and then only tells that the time is up.
func (l *Log) Trouble() error { return l.heard.last() }

// Where Read begins.
const (
	FromLatest   int64 = -1
	FromEarliest int64 = -2
)

func offset(from int64) kgo.Offset {
	switch from {
	case FromLatest:
		return kgo.NewOffset().AtEnd()
	case FromEarliest:
		return kgo.NewOffset().AtStart()
	default:
		return kgo.NewOffset().At(from)
	}
}

// Close ends all connections.
func (l *Log) Close() { l.kafka.Close() }

// Ping finds out whether any bootstrap server answers, so that a wrong address is told at once rather than after all
// retries.
func (l *Log) Ping(ctx context.Context) error {
	err := l.kafka.Ping(ctx)
	if _, closed := errors.AsType[*kgo.ErrFirstReadEOF](err); closed {
		return errors.New("the connection was closed: want the CLIENT address of a member")
	}
	if err != nil && over(ctx) {
		return errors.New("the time is up: want the CLIENT address of a member")
	}
	if err != nil {
		return plain(err)
	}
	return nil
}

// Append appends one record and waits until it is committed. It returns its offset.
func (l *Log) Append(ctx context.Context, key, value []byte) (int64, error) {
	r := &kgo.Record{Key: key, Value: value}
	if err := l.kafka.ProduceSync(ctx, r).FirstErr(); err != nil {
		return -1, plain(err)
	}
	return r.Offset, nil
}

// AppendAsync appends a record and calls done, in order, once it is committed or has failed. It waits while too many
// are under way.
func (l *Log) AppendAsync(ctx context.Context, key, value []byte, done func(offset int64, err error)) {
	l.kafka.Produce(ctx, &kgo.Record{Key: key, Value: value}, func(r *kgo.Record, err error) {
		if err != nil {
			done(-1, plain(err))
			return
		}
		done(r.Offset, nil)
	})
}

// Flush waits until all appends have ended.
func (l *Log) Flush(ctx context.Context) error { return l.kafka.Flush(ctx) }

// End returns the end of what is committed, as the leader knows it now. It waits for an election to end, before which the
// leader may not be reached, and after which it does not know what is committed before its own first record is.
func (l *Log) End(ctx context.Context) (int64, error) {
	var why error
	for {
		end, err := l.end(ctx)
		if err == nil {
			return end, nil
		}
		if why == nil || !over(ctx) { // an attempt that the end of the time cut short says less than the one before
			why = err
		}
		if code, ok := errors.AsType[*kerr.Error](err); ok && !code.Retriable || !pause(ctx, retryAfter) {
			break
		}
	}
	if trouble := l.Trouble(); trouble != nil && over(ctx) {
		return -1, trouble
	}
	return -1, plain(why)
}

func (l *Log) end(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = wire.TimestampLatest
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: l.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := req.RequestWith(ctx, l.kafka)
	if err != nil {
		return -1, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1, fmt.Errorf("the end of topic %s was not answered", l.topic)
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

// Read calls f with each record in order, from where OpenLog was told, up to the offset until (exclusive; negative: for
// ever). f ends it by an error, which is returned.
func (l *Log) Read(ctx context.Context, until int64, f func(Record) error) error {
	l.kafka.AddConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {0: l.from}})
	for {
		fetches := l.kafka.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			if code, ok := errors.AsType[*kerr.Error](e.Err); ok && !code.Retriable {
				return plain(e.Err)
			}
			// No connection, or an election: it goes on by itself. Whoever does not want to wait ends the context.
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			if until >= 0 && r.Offset >= until {
				return nil
			}
			if !r.Attrs.IsControl() {
				if err := f(Record{r.Offset, r.LeaderEpoch, r.Timestamp, r.Key, r.Value}); err != nil {
					return err
				}
			}
			if until >= 0 && r.Offset+1 >= until {
				return nil
			}
		}
	}
}

// plain drops what the Kafka client wraps around an error that says it all.
func plain(err error) error {
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return &Error{Code: raft.ErrorCode(e.Code), Message: e.Description}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return fmt.Errorf("%s: %w", op.Addr, op.Err)
	}
	return err
}

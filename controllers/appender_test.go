package controllers_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const topic = "__cluster_metadata"

// appender is an ordinary Kafka client with its defaults, that appends one
// record after another for as long as a spec lasts.
type appender struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	acked  []string
	failed error
	gap    time.Duration // longest between two acknowledgements
}

func kafkaClient(mq *v1alpha1.MetadataQuorum, opts ...kgo.Opt) *kgo.Client {
	GinkgoHelper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(fmt.Sprintf("%s-bootstrap.%s.svc:9092", mq.Name, mq.Namespace)),
		kgo.Dialer(runner.Dial),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond), // the default of seconds would hide our own gaps
		kgo.DefaultProduceTopic(topic),
	}, opts...)...)
	Expect(err).NotTo(HaveOccurred())
	return cl
}

func startAppender(ctx context.Context, mq *v1alpha1.MetadataQuorum) *appender {
	GinkgoHelper()
	a := &appender{client: kafkaClient(mq)}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(a.stop)
	a.done.Go(func() {
		last := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			value := fmt.Sprintf("record %d", n)
			err := a.client.ProduceSync(ctx, &kgo.Record{Key: []byte(value), Value: []byte(value)}).FirstErr()
			a.mu.Lock()
			switch {
			case err == nil:
				a.acked = append(a.acked, value)
				a.gap = max(a.gap, time.Since(last))
				last = time.Now()
			case ctx.Err() == nil && a.failed == nil:
				a.failed = err
			}
			a.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	Eventually(a.count).WithContext(ctx).Should(BeNumerically(">", 0))
	return a
}

func (a *appender) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.acked)
}

func (a *appender) stop() {
	a.cancel()
	a.done.Wait()
	a.client.Close()
}

func (a *appender) longestGap() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gap
}

// expectAllKept stops appending and reads everything back: each acknowledged
// record is there, once, in order.
func (a *appender) expectAllKept(ctx context.Context, mq *v1alpha1.MetadataQuorum) {
	GinkgoHelper()
	a.stop()
	Expect(a.failed).NotTo(HaveOccurred(), "an append was refused for good")
	Expect(a.acked).NotTo(BeEmpty())
	read := readAll(ctx, mq, a.acked[len(a.acked)-1])
	// The last append may have been cut off by our own stop: it's there or not.
	Expect(read).To(HaveLen(len(a.acked)), "lost or doubled records")
	Expect(read).To(Equal(a.acked))
}

// readAll reads from the beginning up to the record with that value.
func readAll(ctx context.Context, mq *v1alpha1.MetadataQuorum, last string) []string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl := kafkaClient(mq, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	var read []string
	for {
		fetches := cl.PollFetches(ctx)
		Expect(ctx.Err()).NotTo(HaveOccurred(), "%d records read, %q is not among them", len(read), last)
		for it := fetches.RecordIter(); !it.Done(); {
			value := string(it.Next().Value)
			read = append(read, value)
			if value == last {
				return read
			}
		}
	}
}

// appendOne appends a record and waits until it's acknowledged.
func appendOne(ctx context.Context, mq *v1alpha1.MetadataQuorum, value string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cl := kafkaClient(mq)
	defer cl.Close()
	Expect(cl.ProduceSync(ctx, &kgo.Record{Key: []byte(value), Value: []byte(value)}).FirstErr()).To(Succeed())
}

package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// BenchmarkAppend is serial writers that append values of 1 KiB to three voters on this machine's disk, one client each
// up to 16. It reports appends a second, the latency that a writer sees, and the leader's fsyncs for each append.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			c := newCluster(b, 3, 0)
			leader := c.leader()
			clients := make([]*kgo.Client, min(writers, 16))
			for i := range clients {
				clients[i] = c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
				c.append(clients[i], keyed("warm", "up"))
			}
			value := make([]byte, 1024)
			latencies := make([][]time.Duration, writers)
			var next atomic.Int64
			var group sync.WaitGroup
			fsyncs := c.metric(leader, "quorum_fsync_seconds_count")
			b.ResetTimer()
			for w := range writers {
				group.Go(func() {
					for next.Add(1) <= int64(b.N) {
						began := time.Now()
						err := clients[w%len(clients)].ProduceSync(context.Background(), &kgo.Record{Key: fmt.Appendf(nil, "%d", w), Value: value}).FirstErr()
						if err != nil {
							b.Error(err)
							return
						}
						latencies[w] = append(latencies[w], time.Since(began))
					}
				})
			}
			group.Wait()
			b.StopTimer()
			fsyncs = c.metric(leader, "quorum_fsync_seconds_count") - fsyncs
			all := slices.Concat(latencies...)
			slices.Sort(all)
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(fsyncs/float64(len(all)), "fsyncs/append")
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkProduce is one request after another, from socket to socket: a batch of that many records, appended and fsynced
// by the only voter. The client allocates nothing.
func BenchmarkProduce(b *testing.B) {
	for _, records := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			c := newCluster(b, 1, 0)
			w := newWire(b, c.leader())
			raw := batchOf(b, records, 16)
			request := produceOf(raw)
			w.ask(request)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				w.ask(request)
			}
		})
	}
}

// BenchmarkFetch is one request after another, from socket to socket, for that many bytes of batches of that many records.
// The client allocates nothing.
func BenchmarkFetch(b *testing.B) {
	for _, test := range []struct{ size, records int }{{16 << 10, 1}, {16 << 10, 100}, {1 << 20, 1}, {1 << 20, 1000}} {
		b.Run(fmt.Sprintf("bytes=%d/records=%d", test.size, test.records), func(b *testing.B) {
			c := newCluster(b, 1, 0)
			w := newWire(b, c.leader())
			fill(w, batchOf(b, test.records, 1024/test.records+16), 2<<20)
			request := fetchOf(0, test.size)
			got := w.ask(request)
			if got < test.size*3/4 || got > test.size+512 {
				b.Fatalf("an answer of %d bytes to a Fetch of %d", got, test.size)
			}
			b.SetBytes(int64(got))
			b.ReportAllocs()
			for b.Loop() {
				w.ask(request)
			}
		})
	}
}

// BenchmarkFetchSnapshot is one piece of 1 MiB of a checkpoint after another, from socket to socket. The client allocates
// nothing.
func BenchmarkFetchSnapshot(b *testing.B) {
	c := newCluster(b, 1, 0, "metadata.log.max.record.bytes.between.snapshots=8000000")
	leader := c.leader()
	_, id := snapshotOf(c, leader, 8<<20)
	w := newWireTo(b, leader, config.Controller)
	request := snapshotFetchOf(c, id, 7, 1<<20)
	b.SetBytes(int64(w.ask(request)))
	b.ReportAllocs()
	for b.Loop() {
		w.ask(request)
	}
}

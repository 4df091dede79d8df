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
)

// BenchmarkAppend is serial writers that append values of 1 KiB to three voters on this machine's disk, one client each
// up to 16. It reports appends a second and the latency that a writer sees.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			c := newCluster(b, 3, 0)
			c.leader()
			clients := make([]*kgo.Client, min(writers, 16))
			for i := range clients {
				clients[i] = c.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
				c.append(clients[i], keyed("warm", "up"))
			}
			value := make([]byte, 1024)
			latencies := make([][]time.Duration, writers)
			var next atomic.Int64
			var group sync.WaitGroup
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
			all := slices.Concat(latencies...)
			slices.Sort(all)
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}

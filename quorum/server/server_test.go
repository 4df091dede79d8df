package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestQuorumFormsAppendsAndReads(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.leader()
	client := c.client()
	const n = 1000
	for i := range n {
		c.append(client, keyed(fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i)))
	}
	got := c.readAll(n)
	for i, r := range got {
		if string(r.Key) != fmt.Sprintf("k%d", i) || string(r.Value) != fmt.Sprintf("v%d", i) {
			t.Fatalf("record %d is %s=%s", i, r.Key, r.Value)
		}
	}
}

// Static voters (kraft.version 0) are for old peers: they elect, replicate and fail over like others.
func TestStaticVotersFormAQuorum(t *testing.T) {
	c := &cluster{t: t, static: true}
	c.form(3, 1)
	leader := c.leader()
	if s := c.status(leader); s.KRaftVersion != 0 || len(s.Voters) != 3 {
		t.Fatalf("kraft.version %d, voters %+v", s.KRaftVersion, s.Voters)
	}
	l := c.load(2)
	c.appendsGoOn()
	c.killMember(leader)
	c.appendsGoOn()
	c.start(leader)
	c.leader()
	l.end()
}

// An opaque topic of another name takes records without a key, as Kafka's own peers write them.
func TestOpaqueTopicOfAnotherName(t *testing.T) {
	c := &cluster{t: t, topic: "registry"}
	c.form(3, 0, "topic.mode=opaque", "topic.id=0123456789abcdefghijkA")
	c.leader()
	client := c.client(kgo.DefaultProduceTopic("registry"))
	for i := range 10 {
		c.append(client, &kgo.Record{Value: fmt.Appendf(nil, "%d", i)})
	}
	reader := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"registry": {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for next := 0; next < 10; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			if r.Key != nil || string(r.Value) != fmt.Sprint(next) {
				t.Fatalf("record %d is %q=%q", next, r.Key, r.Value)
			}
			next++
		}
	}
}

package server

import (
	"fmt"
	"testing"
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

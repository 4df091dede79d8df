//go:build e2e

package e2e

import (
	"flag"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/record"
)

var restarts = flag.Int("restarts", 12, "how often TestPR34FollowerRestarts restarts a follower")

// PR-34: followers are killed and stopped by turns under load. The same node leads the same epoch at the end: who comes back
// does not campaign.
func TestPR34FollowerRestarts(t *testing.T) {
	q := start(t, 3)
	leader, before := q.settled()
	l := begin(t, q.bootstrap(), 2)
	for i := range *restarts {
		p := q.members[(leader.id+1+i%2)%3]
		if i%4 < 2 {
			p.kill()
		} else {
			p.terminate()
		}
		l.run(0)
		p.start()
		if now, view := q.settled(); now != leader || view.Epoch != before.Epoch {
			t.Fatalf("restart %d, of node %d: node %d leads epoch %d, node %d led %d before", i, p.id, view.NodeID, view.Epoch, before.NodeID, before.Epoch)
		}
		l.run(0)
	}
	l.end()
	t.Logf("e2e: %d restarts of followers: node %d leads epoch %d, as before", *restarts, before.NodeID, before.Epoch)
}

// PR-05, B-09: the leader is killed with appends on their way and comes back while the others are down. It knows that it led and does
// not go on: it takes no append and never says that it leads. With the others back there is a newer epoch, and what was
// acknowledged is there.
func TestPR05KilledLeaderComesBackAlone(t *testing.T) {
	q := start(t, 3)
	leader, before := q.settled()
	l := begin(t, q.bootstrap(), *writers)
	l.run(*steady)
	leader.kill()
	for _, p := range q.members {
		p.kill()
	}
	logged := len(leader.said())
	leader.start()
	raw, err := record.NewBuilder(0, record.None).Append(0, []byte("k"), nil).Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	alone := dial(t, []string{leader.client()}).SeedBrokers()[0]
	refused := 0
	q.await("it to give up its epoch", func() bool {
		s := leader.status()
		switch {
		case s == nil:
			return false
		case s.Role == "Leader" || s.Epoch == before.Epoch && s.Role != "Resigned":
			t.Fatalf("%s of epoch %d without the others, led epoch %d", s.Role, s.Epoch, before.Epoch)
		}
		answer, err := alone.Request(t.Context(), produce(raw))
		if err != nil {
			return false // it is about to listen
		}
		if got := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != kerr.NotLeaderForPartition.Code {
			t.Fatalf("%s of epoch %d answers an append with %v", s.Role, s.Epoch, kerr.ErrorForCode(got))
		}
		refused++
		return s.Epoch > before.Epoch && refused > 20
	})
	if said := leader.said()[logged:]; !strings.Contains(said, "role=Prospective") || strings.Contains(said, "role=Leader") {
		t.Errorf("it never says that it campaigns, or says that it leads:\n%s", said)
	}
	for _, p := range q.members {
		if p != leader {
			p.start()
		}
	}
	_, after := q.settled()
	if after.Epoch <= before.Epoch {
		t.Errorf("epoch %d is led, and was before the kill", after.Epoch)
	}
	l.run(0)
	l.end()
	t.Logf("e2e: killed in epoch %d, refused %d appends alone, epoch %d with the others", before.Epoch, refused, after.Epoch)
}

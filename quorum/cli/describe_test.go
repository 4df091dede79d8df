package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/client"
)

// Kafka's tool leaves out the directory id that a static voter has not.
func TestDescribeStatusNamesMembersAsKafkasToolDoes(t *testing.T) {
	var out strings.Builder
	err := showStatus(&out, &client.Quorum{
		Voters:    []client.Replica{{NodeID: 1, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", Endpoints: []client.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}}}},
		Observers: []client.Replica{{NodeID: 9, DirectoryID: "b8tRS7h4TJ2Vt43Dp85v2A"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`CurrentVoters:         [{"id":1,"endpoints":["CONTROLLER://q-1:9093"]}]` + "\n",
		`CurrentObservers:      [{"id":9,"directoryId":"b8tRS7h4TJ2Vt43Dp85v2A"}]` + "\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("got\n%swant the line %s", out.String(), line)
		}
	}
}

// PR-37: ages are by the leader's clock alone, which may be off from that of whoever asks.
func TestPR37AgesInDescribeReplication(t *testing.T) {
	for _, off := range []time.Duration{0, time.Hour, -time.Hour} {
		now := time.Now().Add(off).UnixMilli()
		var out strings.Builder
		err := showReplication(&out, &client.Quorum{
			Voters: []client.Replica{
				{NodeID: 1, Status: "Follower", LastFetchTimestamp: now - 250, LastCaughtUpTimestamp: now - 1250},
				{NodeID: 2, Status: "Leader", LastFetchTimestamp: now, LastCaughtUpTimestamp: now},
			},
			Observers: []client.Replica{{NodeID: 3, Status: "Observer", LastFetchTimestamp: now - 2, LastCaughtUpTimestamp: -1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if want := []string{"1 0 0 250ms ago 1.25s ago Follower", "2 0 0 0s ago 0s ago Leader", "3 0 0 2ms ago never Observer"}; !slices.Equal(got[1:], want) {
			t.Errorf("a leader's clock that is off by %v: got %q, want %q", off, got[1:], want)
		}
	}
}

package cli

import (
	"strings"
	"testing"

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

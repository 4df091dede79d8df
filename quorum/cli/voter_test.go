package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// TestVoterOfFile: --config tells all of a member that Kafka's add-controller reads from it.
func TestVoterOfFile(t *testing.T) {
	for _, test := range []struct{ name, file, says string }{
		{"as formatted", properties, ""},
		{"observer.only", properties + "observer.only=true\n", "/etc/q sets observer.only=true: such a member cannot become a voter"},
		{"any port", strings.Replace(properties, "q-1:9093\n", "q-1:0\n", 1), "/etc/q advertises CONTROLLER with port 0: want a fixed port, it is stored in the voter set"},
	} {
		t.Run(test.name, func(t *testing.T) {
			env, _, stderr := world(t, "format", "-c", "/etc/q", "-t", "c", "-N", "--directory-id", "b8tRS7h4TJ2Vt43Dp85v2A")
			if err := vfs.WriteFile(env.FS, "/etc/q", []byte(test.file)); err != nil {
				t.Fatal(err)
			}
			if code := Run(t.Context(), env); code != 0 {
				t.Fatalf("format: %d %s", code, stderr)
			}
			got, err := env.voterOfFile("/etc/q")
			if test.says != "" {
				if err == nil || err.Error() != test.says {
					t.Errorf("got %v, want %s", err, test.says)
				}
				return
			}
			directory, _ := raft.ParseUUID("b8tRS7h4TJ2Vt43Dp85v2A")
			want := client.Voter{NodeID: 1, DirectoryID: directory, ClusterID: "c", Endpoints: []client.Endpoint{{Name: "CONTROLLER", Host: "q-1", Port: 9093}}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

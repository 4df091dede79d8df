package cli

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
	"github.com/kraft-operator/kraft-operator/quorum/wire"
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

// TestReadmeChangesTheVoters runs the commands of that section of the README as they stand there.
func TestReadmeChangesTheVoters(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Change the voters\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("README.md has no commands to change the voters")
	}
	q := startDev(t)
	q.settled()
	var printed []string
	for line := range strings.Lines(strings.ReplaceAll(block, "$CONTROLLER", q.controllers)) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "go run ./quorum ")
		if !ok {
			t.Fatalf("%q is no command of quorum", line)
		}
		printed = append(printed, q.run("", strings.Fields(args)...))
	}
	d := q.describe()
	if len(printed) != 3 || !strings.HasSuffix(printed[0], " is a voter now; voters: 0, 1, 2, 1000\n") || !strings.HasSuffix(printed[1], " is no voter now; voters: 1, 2, 1000\n") {
		t.Errorf("printed %q", printed)
	}
	if len(d.Voters) != 3 || d.Voters[2].NodeID != 1000 || d.LeaderID == 0 {
		t.Errorf("described %+v", d)
	}
	// Once more is no error when it is so already, and says what there is when it cannot be.
	if got := q.run("", "voter", "add", "--node-id", "1000", "--bootstrap-controller", q.controllers); !strings.Contains(got, " is a voter already; ") {
		t.Errorf("add again printed %q", got)
	}
	var did client.Changed
	if err := json.Unmarshal([]byte(q.run("", "voter", "add", "--node-id", "0", "-o", "json", "--bootstrap-controller", q.controllers)), &did); err != nil || !did.Changed || len(did.Voters) != 4 {
		t.Errorf("add -o json gave %+v, %v", did, err)
	}
	env, _, stderr := world(t, "voter", "remove", "--node-id", "9", "--bootstrap-controller", q.controllers)
	if code := Run(t.Context(), env); code != 1 || stderr.String() != "quorum: remove voter 9: no such voter: want one of 0, 1, 2, 1000\n" {
		t.Errorf("remove of nobody: code %d, %s", code, stderr)
	}
	env, _, stderr = world(t, "voter", "add", "--node-id", "9", "--timeout", "300ms", "--bootstrap-controller", q.controllers)
	if code := Run(t.Context(), env); code != 1 || !strings.Contains(stderr.String(), "waiting: node 9 does not fetch") {
		t.Errorf("add of nobody: code %d, %s", code, stderr)
	}
}

// TestVoterChangeWhoseAnswerIsLost: the command goes on, finds it done, and says so. Repeated, it is clear as well.
func TestVoterChangeWhoseAnswerIsLost(t *testing.T) {
	q := startDev(t)
	q.settled()
	run := func(key int16, args ...string) (code int, lost bool, stdout, stderr string) {
		env, out, errs := world(t, append(append([]string{"voter"}, args...), "--bootstrap-controller", q.controllers)...)
		var once atomic.Bool
		env.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &deafConn{Conn: conn, key: key, once: &once}, err
		}
		code = Run(t.Context(), env)
		return code, once.Load(), out.String(), errs.String()
	}
	const says = ", by an attempt whose answer was lost; voters: "
	code, lost, stdout, stderr := run(wire.AddRaftVoter, "add", "--node-id", "1000")
	if code != 0 || !lost || !strings.Contains(stdout, " is a voter now"+says+"0, 1, 2, 1000\n") {
		t.Errorf("add: code %d, lost %v, %s%s", code, lost, stdout, stderr)
	}
	code, lost, stdout, stderr = run(wire.RemoveRaftVoter, "remove", "--node-id", "1000")
	if code != 0 || !lost || !strings.Contains(stdout, " is no voter now"+says+"0, 1, 2\n") {
		t.Errorf("remove: code %d, lost %v, %s%s", code, lost, stdout, stderr)
	}
	q.settled()
	code, lost, _, stderr = run(wire.RemoveRaftVoter, "remove", "--node-id", "1000")
	if code != 1 || lost || stderr != "quorum: remove voter 1000: no such voter: node 1000 is an observer: want one of 0, 1, 2\n" {
		t.Errorf("removed once more: code %d, lost %v, %s", code, lost, stderr)
	}
}

// deafConn hangs up instead of hearing that the first request with that key was granted.
type deafConn struct {
	net.Conn
	key   int16
	once  *atomic.Bool
	asked bool // what was written last has that key
}

func (c *deafConn) Write(p []byte) (int, error) {
	c.asked = int16(binary.BigEndian.Uint16(p[4:])) == c.key
	return c.Conn.Write(p)
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	const before = 4 + 4 + 1 + 4 // the error code: length, correlation, tags, throttle time
	if granted := c.asked && n >= before+2 && binary.BigEndian.Uint16(p[before:]) == 0; granted && c.once.CompareAndSwap(false, true) {
		return 0, io.EOF
	}
	return n, err
}

func TestStatusTellsOfALostDisk(t *testing.T) {
	q := &client.Quorum{
		Voters:    []client.Replica{{NodeID: 1, DirectoryID: "A", LastFetchTimestamp: 900}, {NodeID: 2, DirectoryID: "B", LastFetchTimestamp: 100}},
		Observers: []client.Replica{{NodeID: 1, DirectoryID: "old", LastFetchTimestamp: 200}, {NodeID: 2, DirectoryID: "C", LastFetchTimestamp: 900}},
	}
	var out strings.Builder
	if err := showStatus(&out, q); err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(out.String(), "\n\n")
	want := `Node 2 votes with directory B and runs with directory C: its disk was lost, or is not mounted.
To let it vote with what it has:
  quorum voter remove --node-id 2 --directory-id B
  quorum voter add --node-id 2
`
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

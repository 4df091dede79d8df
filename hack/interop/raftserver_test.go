//go:build interop

package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// What kafka.tools.TestRaftServer takes for granted: Kafka's own raft over its own
// log, with a leader that appends opaque records all the time.
const (
	performanceTopic     = "__raft_performance_test"
	performanceTopicID   = "AAAAAAAAAAAAAAAAAAAAAg"
	performanceClusterID = "AAAAAAAAAAAAAAAAAAAAAA"
)

// mixed is a static quorum of two members of Kafka's, 1 and 2, and one of ours, 3.
type mixed struct {
	t       *testing.T
	dirs    [4]string
	configs [4]string
	health  string
	running [4]*process
}

func newMixed(t *testing.T) *mixed {
	m := &mixed{t: t}
	ports := freePorts(t, 4)
	var voters []string
	for id := 1; id <= 3; id++ {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", id, ports[id-1]))
	}
	m.health = fmt.Sprintf("127.0.0.1:%d", ports[3])
	for id := 1; id <= 3; id++ {
		m.dirs[id] = filepath.Join(t.TempDir(), fmt.Sprintf("member-%d", id))
		lines := []string{
			fmt.Sprintf("node.id=%d", id),
			fmt.Sprintf("listeners=CONTROLLER://127.0.0.1:%d", ports[id-1]),
			"controller.listener.names=CONTROLLER",
			"listener.security.protocol.map=CONTROLLER:PLAINTEXT",
			"controller.quorum.voters=" + strings.Join(voters, ","),
			"log.dirs=" + m.dirs[id],
		}
		if id == 3 {
			lines[1] += ",HEALTH://" + m.health
			lines = slices.Delete(lines, 3, 4)
			lines = append(lines, "topic.mode=opaque", "topic.name="+performanceTopic, "topic.id="+performanceTopicID)
		}
		m.configs[id] = writeFile(t, fmt.Sprintf("member-%d.properties", id), lines...)
	}
	quorum().output(t, "format", "--cluster-id", performanceClusterID, "--config", m.configs[3])
	return m
}

func (m *mixed) start(id int) {
	if id == 3 {
		m.running[3] = quorum().start(m.t, "quorum-3", "run", "--config", m.configs[3])
		return
	}
	m.running[id] = kafka(m.t, "kafka.tools.TestRaftServer").start(m.t, fmt.Sprintf("kafka-%d", id), "--config", m.configs[id],
		"--replica-directory-id", []string{1: "b8tRS7h4TJ2Vt43Dp85v2A", 2: "Nkij_D9XRiYKNb41SiJo7Q"}[id], "--throughput", "2000", "--record-size", "256")
}

// ourView is what our member says of the quorum in /v1/status; leader -1 is none.
type ourView struct {
	leader        int
	epoch         int32
	highWatermark int64
}

func (m *mixed) view() (ourView, error) {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get("http://" + m.health + status.MemberPath)
	if err != nil {
		return ourView{}, err
	}
	defer resp.Body.Close()
	var s status.Member
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return ourView{}, err
	}
	v := ourView{leader: -1, epoch: s.Epoch, highWatermark: s.HighWatermark}
	if s.Leader != nil {
		v.leader = int(s.Leader.NodeID)
	}
	return v, nil
}

// commits waits until the quorum has a leader other than the excluded one and, if
// that leader is Kafka's, has committed so many records more. Ours has no
// generator: its epoch's start is enough.
func (m *mixed) commits(records int64, not int) ourView {
	m.t.Helper()
	first := int64(-1)
	var v ourView
	eventually(m.t, 90*time.Second, func() string {
		var err error
		if v, err = m.view(); err != nil {
			return "our member's status: " + err.Error()
		}
		if v.leader < 1 || v.leader == not || v.highWatermark < 0 {
			return fmt.Sprintf("a leader that commits, other than %d; now %+v", not, v)
		}
		if first < 0 {
			first = v.highWatermark
		}
		if v.leader != 3 && v.highWatermark < first+records {
			return fmt.Sprintf("%d more records; now %+v", records, v)
		}
		return ""
	})
	return v
}

// Two of Kafka's members and one of ours elect, replicate, lose their leader twice,
// and hold the same bytes.
func TestOursAndKafkasReplicateTheSameBytes(t *testing.T) {
	m := newMixed(t)
	for id := 1; id <= 3; id++ {
		m.start(id)
	}
	v := m.commits(10000, 0)
	t.Logf("first leader: %+v", v)
	for range 2 {
		lost := v.leader
		m.running[lost].signal(syscall.SIGKILL)
		if lost == 3 { // nobody is there to ask; the others find a leader among themselves
			m.start(3)
			v = m.commits(5000, 0)
		} else {
			v = m.commits(5000, lost)
			m.start(lost)
			v = m.commits(5000, 0)
		}
		t.Logf("killed %d: %+v", lost, v)
	}

	// The member that was started last may have a tail of its own, and catches up.
	var logs [4][]byte
	eventually(t, time.Minute, func() string {
		for id := 1; id <= 3; id++ {
			logs[id] = committedBytes(t, filepath.Join(m.dirs[id], performanceTopic+"-0"), v.highWatermark)
		}
		for id := 1; id <= 2; id++ {
			if !bytes.Equal(logs[id], logs[3]) {
				return fmt.Sprintf("equal logs: below offset %d, Kafka's member %d has %d bytes and ours %d; they part at byte %d", v.highWatermark, id,
					len(logs[id]), len(logs[3]), partAt(logs[id], logs[3]))
			}
		}
		return ""
	})
	t.Logf("%d bytes below offset %d are the same on all three", len(logs[3]), v.highWatermark)
	if len(logs[3]) < 256*5000 {
		t.Errorf("only %d bytes were compared", len(logs[3]))
	}
}

// committedBytes returns the batches of a log that end below the high watermark.
func committedBytes(t *testing.T, dir string, highWatermark int64) []byte {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(segments)
	var all []byte
	for _, name := range segments {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		const header = 61 // of a record batch, version 2; the length counts from behind its own field
		for len(b) >= header {
			size := 12 + int(binary.BigEndian.Uint32(b[8:]))
			last := int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:]))
			if size < header || size > len(b) || last >= highWatermark {
				break
			}
			all = append(all, b[:size]...)
			b = b[size:]
		}
	}
	return all
}

func partAt(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

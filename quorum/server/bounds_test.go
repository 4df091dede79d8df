package server

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// stuck is a disk whose log files do not finish an fsync while held.
type stuck struct {
	vfs.FS
	held    atomic.Bool
	release chan struct{}
}

func (s *stuck) Create(name string) (vfs.File, error) { return s.wrap(name)(s.FS.Create(name)) }
func (s *stuck) OpenReadWrite(name string) (vfs.File, error) {
	return s.wrap(name)(s.FS.OpenReadWrite(name))
}

func (s *stuck) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil || !strings.HasSuffix(name, ".log") {
			return f, err
		}
		return stuckFile{f, s}, nil
	}
}

type stuckFile struct {
	vfs.File
	disk *stuck
}

func (f stuckFile) Sync() error {
	if f.disk.held.Load() {
		<-f.disk.release
	}
	return f.File.Sync()
}

// A client that wants no answers is held back like any other once the disk does not keep up: what it sent counts against
// queued.max.request.bytes until its fate is known.
func TestAppendsWithoutAnswersAreBounded(t *testing.T) {
	c := newCluster(t, 1, 0, "message.max.bytes=1048576", "socket.request.max.bytes=1114112", "queued.max.request.bytes=2228224")
	m := c.members[0]
	c.leader()
	disk := &stuck{FS: vfs.OS, release: make(chan struct{})}
	m.fs = disk
	c.killMember(m)
	c.start(m)
	c.leader()
	disk.held.Store(true)
	t.Cleanup(func() { disk.held.Store(false); close(disk.release) })

	raw, err := record.NewBuilder(0, record.None).Append(0, []byte("k"), make([]byte, 1<<20-200)).Build(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = 0, 60_000
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: raw}}}}
	request.SetVersion(9)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("flood")).AppendRequest(nil, request, 1)

	conn, err := net.Dial("tcp", m.listeners[config.Client])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const enough = 64 // far more than the sockets' buffers take
	for i := range enough {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(frame); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatalf("append %d: %v", i, err)
		}
	}
	t.Errorf("%d appends of 1 MiB were taken while the disk stood still", enough)
}

// Nothing on CONTROLLER is large: who announces more is a stranger, and must not take the room of the voters' requests.
func TestLargeFramesAreRefusedOnController(t *testing.T) {
	c := newCluster(t, 1, 0)
	c.leader()
	for name, want := range map[string]error{config.Controller: io.EOF, config.Client: os.ErrDeadlineExceeded} {
		conn, err := net.Dial("tcp", c.members[0].listeners[name])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, 1<<20)); err != nil {
			t.Fatal(err)
		}
		wait := 10 * time.Second
		if want != io.EOF {
			wait = 100 * time.Millisecond
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, want) {
			t.Errorf("%s: a frame of 1 MiB was announced: %v, want %v", name, err, want)
		}
	}
}

// broken is a disk that loses its directory's last word: the file committed cannot be written any more.
type broken struct {
	vfs.FS
	now atomic.Bool
}

func (b *broken) Create(name string) (vfs.File, error) {
	if b.now.Load() && strings.HasSuffix(name, "/committed.tmp") {
		return nil, syscall.EIO
	}
	return b.FS.Create(name)
}

// After a fault of the disk the log serves nobody. A leader that nobody appends to must not stay in office with it.
func TestDiskFaultEndsAnIdleMember(t *testing.T) {
	c := newCluster(t, 1, 0)
	m := c.leader()
	c.killMember(m)
	disk := &broken{FS: vfs.OS}
	m.fs = disk
	c.start(m)
	c.leader()
	disk.now.Store(true)
	_, _ = c.raw(m, produce(build(t, -1, -1, -1, 1), -1)) // the member may end before it answers
	err := c.wait(m)
	if fatal, ok := errors.AsType[*Fatal](err); !ok || fatal.Token != raft.FatalReason(storage.DiskIOError) {
		t.Errorf("ended with %v, want %s", err, storage.DiskIOError)
	}
}

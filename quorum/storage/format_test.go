package storage_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

func TestFormatWritesWhatKafkaReads(t *testing.T) {
	fsys := formatted(t)
	if got, want := readFile(t, fsys, dataDir+"/meta.properties"), "#crc32c 12e34d0a\nnode.id=1\ndirectory.id=ABEiM0RVZneImaq7zN3u_w\nversion=1\ncluster.id=clusterA\n"; got != want {
		t.Errorf("meta.properties: %q, want %q", got, want)
	}
	names, err := fsys.List(logDir)
	if err != nil || strings.Join(names, " ") != "00000000000000000000-0000000000.checkpoint" {
		t.Errorf("log directory: %v, %v", names, err)
	}
	var got []record.Control
	if err := storage.Inspect(fsys, logDir+"/00000000000000000000-0000000000.checkpoint", func(p storage.Part) error {
		controls, err := record.DecodeControls(p.Value.(record.Batch))
		got = append(got, controls...)
		return errors.Join(p.Err, err)
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]record.Control{
		{Type: record.TypeSnapshotHeader, Offset: 0, LastContainedLogTimestamp: 1000},
		{Type: record.TypeKRaftVersion, Offset: 1, Record: raft.KRaftVersion{Version: 1}},
		{Type: record.TypeVoters, Offset: 2, Record: raft.Voters{Set: voters()}},
		{Type: record.TypeSnapshotFooter, Offset: 3},
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFormatWithoutVotersAndStatic(t *testing.T) {
	for _, tt := range []struct {
		version int16
		want    string // files after the first start
		control int
	}{{1, `"data_version":1`, 1}, {0, `"data_version":0`, 0}} {
		fsys := vfs.NewMem()
		o := formatOptions()
		o.InitialVoters, o.KRaftVersion = nil, tt.version
		if err := storage.Format(fsys, dataDir, o); err != nil {
			t.Fatal(err)
		}
		d := open(t, fsys, opts)
		if got := d.LogState().Control; len(got) != tt.control {
			t.Errorf("kraft.version %d: %+v", tt.version, got)
		}
		if d.Meta().DirectoryID.IsZero() || strings.HasPrefix(d.Meta().DirectoryID.String(), "-") {
			t.Errorf("directory id %s", d.Meta().DirectoryID)
		}
		if got := readFile(t, fsys, logDir+"/quorum-state"); !strings.Contains(got, tt.want) {
			t.Errorf("kraft.version %d: quorum-state %s", tt.version, got)
		}
		mustClose(t, d)
	}
}

// TestFormatTwice: the same ids succeed and change nothing, others fail (ST-24: and never over a log).
func TestFormatTwice(t *testing.T) {
	other := mustUUID("AQIDBAUGBwgJCgsMDQ4PEA")
	for _, tt := range []struct {
		name   string
		change func(*storage.FormatOptions)
		token  storage.Token // "": succeeds
	}{
		{"same", func(o *storage.FormatOptions) {}, ""},
		{"same without directory id", func(o *storage.FormatOptions) { o.InitialVoters = nil }, ""},
		{"cluster", func(o *storage.FormatOptions) { o.ClusterID = "clusterB" }, storage.ClusterIDMismatch},
		{"node", func(o *storage.FormatOptions) { o.NodeID, o.InitialVoters = 2, nil }, storage.NodeIDMismatch},
		{"directory", func(o *storage.FormatOptions) { o.DirectoryID, o.InitialVoters = other, nil }, storage.DirectoryMismatch},
		{"ignored", func(o *storage.FormatOptions) { o.ClusterID, o.IgnoreFormatted = "clusterB", true }, ""},
	} {
		fsys := formatted(t)
		before := files(t, fsys)
		o := formatOptions()
		tt.change(&o)
		err := storage.Format(fsys, dataDir, o)
		if tt.token == "" && err != nil || tt.token != "" && !storage.IsToken(err, tt.token) {
			t.Errorf("%s: %v, want token %q", tt.name, err, tt.token)
		}
		for name, data := range files(t, fsys) {
			if before[name] != data {
				t.Errorf("%s: %s changed", tt.name, name)
			}
		}
	}
	fsys := formatted(t)
	mustClose(t, open(t, fsys, opts))
	if err := fsys.Remove(dataDir + "/meta.properties"); err != nil {
		t.Fatal(err)
	}
	if err := storage.Format(fsys, dataDir, formatOptions()); !storage.IsToken(err, storage.StateFileCorrupt) {
		t.Errorf("format over a log without meta.properties: %v", err)
	}
}

func TestFormatRefusesContradictions(t *testing.T) {
	for name, change := range map[string]func(*storage.FormatOptions){
		"no cluster id":                     func(o *storage.FormatOptions) { o.ClusterID = "" },
		"node id -1":                        func(o *storage.FormatOptions) { o.NodeID = -1 },
		"kraft.version 2":                   func(o *storage.FormatOptions) { o.KRaftVersion = 2 },
		"not among the initial controllers": func(o *storage.FormatOptions) { o.NodeID = 3 },
		"need kraft.version 1":              func(o *storage.FormatOptions) { o.KRaftVersion = 0 },
		"initial controllers give node 1":   func(o *storage.FormatOptions) { o.DirectoryID = mustUUID("AQIDBAUGBwgJCgsMDQ4PEA") },
		"is reserved": func(o *storage.FormatOptions) {
			o.InitialVoters, o.DirectoryID = nil, raft.UUID{15: 7}
		},
	} {
		fsys := vfs.NewMem()
		o := formatOptions()
		change(&o)
		if err := storage.Format(fsys, dataDir, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if ok, _ := vfs.Exists(fsys, dataDir); ok {
			t.Errorf("%s: something was written", name)
		}
	}
}

func TestUnformattedDirectoryNamesTheCommand(t *testing.T) {
	fsys := vfs.NewMem()
	_, err := storage.Open(fsys, dataDir, opts)
	if !storage.IsToken(err, storage.NotFormatted) || !strings.Contains(err.Error(), "quorum format") {
		t.Errorf("missing directory: %v", err)
	}
	// ST-20: a fresh ext4 volume is not empty, nor are others.
	_ = fsys.MkdirAll(dataDir + "/lost+found")
	_ = fsys.MkdirAll(dataDir + "/.snapshot")
	writeFile(t, fsys, dataDir+"/aquota.user", "quotas")
	if _, err := storage.Open(fsys, dataDir, opts); !storage.IsToken(err, storage.NotFormatted) {
		t.Errorf("empty volume: %v", err)
	}
	if err := storage.Format(fsys, dataDir, formatOptions()); err != nil {
		t.Errorf("format beside lost+found: %v", err)
	}
	mustClose(t, open(t, fsys, opts))
	if got := readFile(t, fsys, dataDir+"/aquota.user"); got != "quotas" {
		t.Errorf("aquota.user is now %q", got)
	}
}

// TestST18ST19ForeignVolumes: another cluster's or node's directory is refused with both ids, and nothing is written.
func TestST18ST19ForeignVolumes(t *testing.T) {
	for _, tt := range []struct {
		o     storage.Options
		token storage.Token
		says  []string
	}{
		{storage.Options{ClusterID: "clusterB", NodeID: 1}, storage.ClusterIDMismatch, []string{"clusterA", "clusterB"}},
		{storage.Options{ClusterID: "clusterA", NodeID: 2}, storage.NodeIDMismatch, []string{"node 1", "node.id=2"}},
	} {
		fsys := vfs.WithFaults(formatted(t), func(c vfs.Call) error {
			if c.Op.Writes() || c.Op == vfs.OpLock {
				t.Errorf("%s: %s %s", tt.token, c.Op, c.Path)
			}
			return nil
		})
		_, err := storage.Open(fsys, dataDir, tt.o)
		if !storage.IsToken(err, tt.token) {
			t.Errorf("got %v, want %s", err, tt.token)
		}
		for _, s := range tt.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not name %q", err, s)
			}
		}
	}
}

func TestTopicIDMismatch(t *testing.T) {
	fsys := formatted(t)
	mustClose(t, open(t, fsys, opts))
	o := opts
	o.TopicID = raft.UUID{15: 2}
	if _, err := storage.Open(fsys, dataDir, o); !storage.IsToken(err, storage.TopicIDMismatch) {
		t.Errorf("got %v", err)
	}
}

func TestTopicNameMismatch(t *testing.T) {
	fsys := formatted(t)
	o := opts
	o.Topic = "another"
	_, err := storage.Open(fsys, dataDir, o)
	if !storage.IsToken(err, storage.TopicNameMismatch) || !strings.Contains(err.Error(), "topic.name=another") {
		t.Errorf("got %v", err)
	}
	mustClose(t, open(t, fsys, opts)) // it is as it was
}

func TestST20ReadOnlyVolumeIsNotWritable(t *testing.T) {
	fsys := vfs.WithFaults(formatted(t), vfs.ReadOnly)
	_, err := storage.Open(fsys, dataDir, opts)
	user := fmt.Sprintf("as user id %d", os.Getuid())
	if !storage.IsToken(err, storage.NotWritable) || !strings.Contains(err.Error(), "/data/.lock") || !strings.Contains(err.Error(), user) {
		t.Errorf("open: %v, want the path and %q", err, user)
	}
	if err := storage.Format(vfs.WithFaults(vfs.NewMem(), vfs.ReadOnly), dataDir, formatOptions()); !storage.IsToken(err, storage.NotWritable) {
		t.Errorf("format: %v", err)
	}
	full := vfs.NewMem()
	full.SetCapacity(100)
	if err := storage.Format(full, dataDir, formatOptions()); !errors.Is(err, storage.ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("format on a full disk: %v", err)
	}
}

// TestGoldenMetaWithoutDirectoryID: Kafka before 3.7 wrote none; it is made up once and kept.
func TestMetaWithoutDirectoryIDIsCompleted(t *testing.T) {
	fsys := formatted(t)
	writeFile(t, fsys, dataDir+"/meta.properties", "#\n#Tue Sep 01 00:00:00 UTC 2026\ncluster.id=clusterA\nversion=1\nnode.id=1\n")
	o := opts
	raw, _ := hex.DecodeString("00112233445546778899aabbccddeeff")
	o.Random = bytes.NewReader(raw)
	d := open(t, fsys, o)
	id := d.Meta().DirectoryID
	mustClose(t, d)
	d = open(t, fsys, opts)
	defer d.Abandon()
	if id.IsZero() || d.Meta().DirectoryID != id {
		t.Errorf("directory id %s, then %s", id, d.Meta().DirectoryID)
	}
}

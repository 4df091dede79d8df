package storage_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/record"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

// seal gives every batch in p the checksum that it should have: a fuzzer cannot guess it.
func seal(p []byte) []byte {
	for rest := p; len(rest) > 0; {
		h, err := record.ParseHeader(rest)
		if err != nil || h.Size > len(rest) {
			break
		}
		binary.BigEndian.PutUint32(rest[17:], crc32.Checksum(rest[21:h.Size], crc32.MakeTable(crc32.Castagnoli)))
		rest = rest[h.Size:]
	}
	return p
}

// FuzzVerify gives Verify and Open the same files, of any content. What Verify calls whole, Open opens, and finds the same
// in it; what Open refuses, Verify calls damaged. And no byte is left out or told of twice.
func FuzzVerify(f *testing.F) {
	const (
		segment    = "00000000000000000000.log"
		checkpoint = "00000000000000000020-0000000002.checkpoint"
	)
	f.Add(true, []byte(readFile(f, kafka(f, "static-voter"), logDir+"/"+segment))[:3000],
		[]byte(readFile(f, kafka(f, "formatted-static"), logDir+"/00000000000000000000-0000000000.checkpoint")),
		[]byte(readFile(f, kafka(f, "static-voter"), logDir+"/quorum-state")), []byte("0\n2\n2 0\n3 23\n"), []byte("0\n1\n2 20\n"))
	f.Add(false, []byte(readFile(f, ours(f), logDir+"/"+segment)), []byte(nil),
		[]byte(readFile(f, ours(f), logDir+"/quorum-state")), []byte(readFile(f, ours(f), logDir+"/leader-epoch-checkpoint")), storage.EncodeCommitted(0, 0))
	f.Fuzz(func(t *testing.T, sealed bool, log, snapshot, state, epochs, committed []byte) {
		if sealed {
			log, snapshot = seal(log), seal(snapshot)
		}
		fsys := formatted(t)
		for name, data := range map[string][]byte{
			segment: log, checkpoint: snapshot, "quorum-state": state, "leader-epoch-checkpoint": epochs, "committed": committed,
		} {
			if name == checkpoint && data == nil {
				continue
			}
			writeFile(t, fsys, logDir+"/"+name, string(data))
			var end int64
			if err := storage.Inspect(fsys, logDir+"/"+name, func(p storage.Part) error {
				if p.Position < end && p.Err == nil {
					t.Fatalf("%s: a part at %d after one that ends at %d", name, p.Position, end)
				}
				end = max(end, p.Position+p.Bytes)
				return nil
			}); err != nil || end != int64(len(data)) {
				t.Fatalf("%s: told of %d bytes of %d, %v", name, end, len(data), err)
			}
		}
		r := verify(t, fsys)
		d, err := storage.Open(fsys, dataDir, opts)
		switch {
		case err != nil && r.Whole():
			t.Fatalf("whole, but %v", err)
		case err != nil:
			return
		}
		defer d.Abandon()
		replaced := false
		for _, f := range r.Findings {
			replaced = replaced || strings.Contains(f.What, "is ahead of the log")
		}
		l := r.Logs[0]
		if r.Whole() && (d.ElectionState() != l.State.ElectionState || !replaced && (d.Log.Start() != l.Start || d.Log.End() != l.End)) {
			t.Fatalf("opened [%d,%d) %+v, verify says [%d,%d) %+v: %v", d.Log.Start(), d.Log.End(), d.ElectionState(), l.Start, l.End, l.State, r.Findings)
		}
	})
}

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	Damage  Severity = "damage"  // no writer left it so: something was lost or changed
	Warning Severity = "warning" // unusual, and worth a look; a member starts on it
	Note    Severity = "note"    // harmless, as a crash or a running member leaves it
)

// Finding is one thing that Verify has to say.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`     // below the directory
	Position int64    `json:"position"` // byte in the file; -1: the file as a whole
	Offset   int64    `json:"offset"`   // in the log; -1: none
	What     string   `json:"what"`
	Do       string   `json:"do,omitempty"` // what helps
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s", f.Severity, f.Place(), f.What)
	if f.Do != "" {
		s += " (" + f.Do + ")"
	}
	return s
}

// Place is where it is, as text.
func (f Finding) Place() string {
	s := f.File
	if f.Position >= 0 {
		s += fmt.Sprintf(", position %d", f.Position)
	}
	if f.Offset >= 0 {
		s += fmt.Sprintf(", offset %d", f.Offset)
	}
	return s
}

// Report is the result of Verify.
type Report struct {
	InUse    bool // a member runs on the directory
	Meta     Meta // zero if it cannot be read
	Logs     []LogReport
	Findings []Finding // in the order of reading; at most a thousand
	Unlisted int       // more of them
}

const maxFindings = 1000

// Whole reports whether nothing is damaged.
func (r *Report) Whole() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Damage })
}

// LogReport sums up one <topic>-0 directory.
type LogReport struct {
	Name        string
	State       *State // nil: no quorum-state, or damaged
	Start, End  int64
	Epochs      []raft.OffsetAndEpoch // as the log has them
	Segments    int
	Batches     int64
	Records     int64
	Bytes       int64 // of the segments
	Committed   *raft.OffsetAndEpoch
	Checkpoints []raft.OffsetAndEpoch // whole ones, ascending; without 0-0
	Voters      []raft.ReplicaKey     // newest set in checkpoints and log
}

// Verify reads all of a member's directory and checks what must hold in it: each file by itself, and that they agree. It
// locks and changes nothing, and may run beside a member. The error is one that kept it from reading, not damage.
//
// progress, if not nil, is called now and then with the bytes read of all there are.
func Verify(fsys vfs.FS, dir string, progress func(done, total int64)) (*Report, error) {
	const looks = 3
	for look := 1; ; look++ {
		v := &verifier{fsys: fsys, dir: dir, progress: progress}
		if err := v.run(); err != nil {
			return nil, err
		}
		// Beside a running member a file may be read before, and another after a change. Damage is there again.
		if !v.report.InUse || v.report.Whole() || look == looks {
			return &v.report, nil
		}
	}
}

// What helps. A member's data is there as often as there are members: the remedy for most damage is a new directory.
const (
	doReplace     = "the other voters have what is lost here, if a majority of them is well: format a new directory for this member; a voter is removed first, and added again (quorum voter)"
	doKeepState   = "never edit or delete it: this member may have voted, and must not vote again; format a new one, as after a lost disk"
	doMeta        = "compare with the configuration and with the annotations or notes made at format"
	doEpochs      = "nothing is lost: the next start writes it again from the log"
	doPartition   = "nothing is lost: delete it, and the next start writes it again"
	doCommitted   = "if nothing else is damaged: delete it, and it is written again"
	doCheckpoint  = "if an older checkpoint, or the log from 0, is whole: delete it; else format a new directory for this member"
	doProducers   = "nothing is lost: it is not read here, and Kafka makes it again"
	doUncommitted = "no file `committed` tells what was synced, so this may be a write that a crash cut short; if not, " + doReplace
)

type verifier struct {
	fsys     vfs.FS
	dir      string
	progress func(done, total int64)
	report   Report

	done, total int64
}

func (v *verifier) find(s Severity, file string, position, offset int64, do, format string, args ...any) {
	if len(v.report.Findings) == maxFindings {
		v.report.Unlisted++
		return
	}
	v.report.Findings = append(v.report.Findings, Finding{s, file, position, offset, fmt.Sprintf(format, args...), do})
}

func (v *verifier) run() error {
	names, err := v.fsys.List(v.dir)
	if err != nil {
		return err
	}
	if v.report.InUse, err = v.fsys.Locked(path.Join(v.dir, lockFile)); err != nil {
		return err
	}
	logs, err := v.survey(names)
	if err != nil {
		return err
	}
	switch ran := slices.ContainsFunc(logs, (*logVerifier).ran); {
	case slices.Contains(names, metaFile):
		m, err := readSmall[Meta](v, metaFile, doMeta)
		if err != nil {
			return err
		}
		if m != nil {
			v.report.Meta = *m
		}
	case slices.ContainsFunc(names, provesRun):
		return fault(NotFormatted, "%s has no %s: it is the directory of a log; the member's is the one above", v.dir, metaFile)
	case !ran:
		return fault(NotFormatted, "%s has no %s: it is no member's directory", v.dir, metaFile)
	default:
		v.find(Damage, metaFile, -1, -1, doMeta, "is missing beside a log")
	}
	if len(logs) == 0 {
		v.find(Damage, DefaultTopic+"-0", -1, -1, doReplace, "is missing: there is no log directory")
	}
	for _, l := range logs {
		if err := l.run(); err != nil {
			return err
		}
		v.report.Logs = append(v.report.Logs, l.LogReport)
	}
	return nil
}

// survey finds the log directories, and what else is there.
func (v *verifier) survey(names []string) ([]*logVerifier, error) {
	var logs []*logVerifier
	for _, name := range names {
		info, err := v.fsys.Stat(path.Join(v.dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // just gone
		case err != nil:
			return nil, err
		case !info.Dir:
			v.other("", name)
			continue
		}
		inside, err := v.fsys.List(path.Join(v.dir, name))
		if err != nil {
			return nil, err
		}
		if !IsLogDir(name, inside) {
			continue
		}
		l := &logVerifier{verifier: v, names: inside, sizes: map[string]int64{}, LogReport: LogReport{Name: name}}
		for _, file := range inside {
			info, err := v.fsys.Stat(path.Join(v.dir, name, file))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			l.sizes[file] = info.Size
			if kind := KindOf(file); kind == KindSegment || kind == KindCheckpoint {
				v.total += info.Size
			}
			v.other(name, file)
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// IsLogDir tells the directory of a quorum's log from those of other topics that a Kafka broker may keep beside it.
func IsLogDir(name string, inside []string) bool {
	return strings.HasSuffix(name, "-0") && slices.ContainsFunc(inside, func(file string) bool {
		kind := KindOf(file)
		return kind == KindState || kind == KindCheckpoint || kind == KindCommitted
	})
}

// other mentions files that nothing reads.
func (v *verifier) other(dir, name string) {
	switch KindOf(name) {
	case KindLeftover:
		v.find(Note, path.Join(dir, name), -1, -1, "", "left by an interrupted write, or waiting to be deleted: the next start removes it")
	case KindUnknown:
		v.find(Note, path.Join(dir, name), -1, -1, "", "is not of a member, and not read")
	default:
	}
}

// errUnread says that a file could not be read to its end, which is a finding.
var errUnread = errors.New("not read")

// inspect is Inspect with trouble of reading turned into findings and errUnread.
func (v *verifier) inspect(file, do string, visit func(Part) error) error {
	err := Inspect(v.fsys, path.Join(v.dir, file), visit)
	switch {
	case err == nil, errors.Is(err, errTorn):
		return err
	case errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, fs.ErrNotExist):
		v.find(Note, file, -1, -1, "", "was removed while the directory was read")
	default:
		v.find(Damage, file, -1, -1, do, "cannot be read: %v", err)
	}
	return errUnread
}

// readSmall reads a file that is one value; nil if it has none, whatever the reason, which is then a finding.
func readSmall[T any](v *verifier, file, do string) (value *T, err error) {
	err = v.inspect(file, do, func(p Part) error {
		if p.Err != nil {
			v.find(Damage, file, p.Position, -1, do, "%v", p.Err)
		}
		if t, ok := p.Value.(T); ok {
			value = &t
		}
		return nil
	})
	if errors.Is(err, errUnread) {
		return nil, nil //nolint:nilnil // no value
	}
	return value, err
}

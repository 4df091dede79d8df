package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

func newVerify(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check that a member's directory is whole",
		Long: `Check that a member's directory (log.dirs) is whole: each file by itself, and that all of them agree. It reads our
directories and those of Apache Kafka's controllers.

Damage is named with file, position and offset, and with what helps; the exit code is 1 then. A warning is unusual but
no damage. Notes are what a crash or a running member leaves behind: a torn tail, which is above all that was committed
and synced and which the next start cuts off, is one of them.

Nothing is locked or changed, and a member may run on the directory. Not everything can be told: Kafka's quorum-state
and meta.properties have no checksum, so a value in them may have turned into another one that is as good.`,
		Example: `  quorum verify /var/lib/quorum
  quorum verify -o json /var/lib/quorum | jq '.findings[]'`,
		Args: oneArg("DIR"),
	}
	o := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error { return e.verify(path.Clean(args[0]), *o) }
	return cmd
}

// verified is what -o json prints.
type verified struct {
	Directory string            `json:"directory"`
	Whole     bool              `json:"whole"`
	InUse     bool              `json:"inUse"`
	Meta      dumpMeta          `json:"meta"`
	Logs      []verifiedLog     `json:"logs"`
	Findings  []storage.Finding `json:"findings"`
	Unlisted  int               `json:"unlisted"` // more findings
}

type verifiedLog struct {
	Name        string         `json:"name"`
	State       *dumpState     `json:"state"`
	Start       int64          `json:"start"`
	End         int64          `json:"end"`
	Epochs      []dumpPosition `json:"epochs"`
	Segments    int            `json:"segments"`
	Batches     int64          `json:"batches"`
	Records     int64          `json:"records"`
	Bytes       int64          `json:"bytes"`
	Committed   *dumpPosition  `json:"committed"`
	Checkpoints []dumpPosition `json:"checkpoints"`
	Voters      []string       `json:"voters"`
}

func (e *Env) verify(dir string, o output) error {
	progress, done := e.progress("verified")
	r, err := storage.Verify(e.FS, dir, progress)
	done()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = cause(err)
		}
		return fmt.Errorf("verify %s: %w", dir, err)
	}
	if o == asJSON {
		err = printJSON(e.Stdout, reportOf(dir, r))
	} else {
		err = printReport(e.Stdout, dir, r)
	}
	if err != nil || r.Whole() {
		return err
	}
	damage := slices.DeleteFunc(slices.Clone(r.Findings), func(f storage.Finding) bool { return f.Severity != storage.Damage })
	return fmt.Errorf("verify %s: damaged in %s, the first: %s: %s", dir, places(len(damage)+r.Unlisted), damage[0].Place(), damage[0].What)
}

func reportOf(dir string, r *storage.Report) verified {
	v := verified{
		Directory: dir, Whole: r.Whole(), InUse: r.InUse, Findings: append([]storage.Finding{}, r.Findings...), Unlisted: r.Unlisted,
		Meta: dumpMeta{r.Meta.ClusterID, r.Meta.NodeID, r.Meta.DirectoryID.String()}, Logs: []verifiedLog{},
	}
	for _, l := range r.Logs {
		out := verifiedLog{
			Name: l.Name, Start: l.Start, End: l.End, Epochs: positions(l.Epochs), Segments: l.Segments, Batches: l.Batches,
			Records: l.Records, Bytes: l.Bytes, Checkpoints: positions(l.Checkpoints), Voters: []string{},
		}
		if l.State != nil {
			s := *l.State
			out.State = &dumpState{s.Version, s.Epoch, s.Leader, s.Voted.ID, s.Voted.DirectoryID.String(), s.Voters}
		}
		if l.Committed != nil {
			out.Committed = &dumpPosition{l.Committed.Epoch, l.Committed.Offset}
		}
		for _, k := range l.Voters {
			out.Voters = append(out.Voters, k.String())
		}
		v.Logs = append(v.Logs, out)
	}
	return v
}

func positions(ps []raft.OffsetAndEpoch) []dumpPosition {
	all := []dumpPosition{}
	for _, p := range ps {
		all = append(all, dumpPosition{p.Epoch, p.Offset})
	}
	return all
}

func printReport(w io.Writer, dir string, r *storage.Report) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", name+":", fmt.Sprintf(format, args...))
	}
	line("directory", "%s: cluster %s, node %d, directory id %s", dir, r.Meta.ClusterID, r.Meta.NodeID, r.Meta.DirectoryID)
	if r.InUse {
		line("in use", "a member runs on it")
	}
	for _, l := range r.Logs {
		line("log", "%s: offsets %d to %d, records: %d, batches: %d, segments: %d, bytes: %d", l.Name, l.Start, l.End, l.Records, l.Batches, l.Segments, l.Bytes)
		if l.State != nil {
			line("election", "epoch %d, leader %s, voted for %s", l.State.Epoch, someone(raft.ReplicaKey{ID: l.State.Leader}), someone(l.State.Voted))
		}
		if len(l.Epochs) > 0 {
			line("epochs", "%s", joined(l.Epochs, "%d from offset %d"))
		}
		if l.Committed != nil {
			line("committed", "all before offset %d", l.Committed.Offset)
		}
		if len(l.Checkpoints) > 0 {
			line("checkpoints", "%s", joined(l.Checkpoints, "epoch %d up to offset %d"))
		}
		if len(l.Voters) > 0 {
			line("voters", "%s", strings.Trim(fmt.Sprint(l.Voters), "[]"))
		}
	}
	for _, f := range r.Findings {
		line(string(f.Severity), "%s: %s", f.Place(), f.What)
		if f.Do != "" && f.Severity != storage.Note {
			line("what helps", "%s", f.Do)
		}
	}
	if r.Unlisted > 0 {
		fmt.Fprintf(&b, "and %d more\n", r.Unlisted)
	}
	if r.Whole() {
		b.WriteString("whole\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func joined(ps []raft.OffsetAndEpoch, format string) string {
	var all []string
	for _, p := range ps {
		all = append(all, fmt.Sprintf(format, p.Epoch, p.Offset))
	}
	return strings.Join(all, ", ")
}

// progress shows how far a long reading is, on a terminal only, twice a second at most. remove takes it away.
func (e *Env) progress(did string) (show func(done, total int64), remove func()) {
	terminal, ok := e.Stderr.(*os.File)
	if !ok {
		return nil, func() {}
	}
	if info, err := terminal.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil, func() {}
	}
	last, shown := time.Now(), false
	return func(done, total int64) {
			if now := time.Now(); now.Sub(last) > 500*time.Millisecond && total > 0 {
				last, shown = now, true
				fmt.Fprintf(terminal, "\r%s %d of %d MiB", did, done>>20, total>>20)
			}
		}, func() {
			if shown {
				fmt.Fprint(terminal, "\r\033[K")
			}
		}
}

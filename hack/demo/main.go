// Command demo shows the main job on a real Kubernetes: a MetadataQuorum is applied,
// and while a client appends all the time it is scaled, rolled twice, evicted,
// robbed of its leader, killed, deleted and applied again. At the end everything
// that was acknowledged is read back. `make demo` starts it, in the cluster's
// network, with KUBECONFIG set; it exits with 0 only if every step held.
//
// Whatever a person would type, it does with kubectl, and prints it. What it waits
// for and judges by, it reads through the API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// step is one part of the story: what it is called and what it does. It answers
// with one line that says what was seen.
type step struct {
	name string
	do   func(*demo, context.Context) (string, error)
}

var story = []step{
	{"install the operator", (*demo).install},
	{"apply config/samples: the quorum forms", (*demo).form},
	{"see it in kubectl get mq", (*demo).look},
	{"scale: only observers come and go", (*demo).scale},
	{"roll: a new image", (*demo).rollImage},
	{"roll: spec.rollout.restartedAt", (*demo).rollRestart},
	{"evict two voters at once", (*demo).evict},
	{"delete the leader's pod by hand", (*demo).deleteLeader},
	{"SIGKILL the leader's process", (*demo).kill},
	{"delete the resource, apply it again", (*demo).recreate},
	{"read everything back", (*demo).readBack},
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&o.operator, "operator", "dist/demo", "the kustomization `FOLDER` that installs the operator")
	flags.StringVar(&o.sample, "sample", "config/samples", "the kustomization `FOLDER` with the MetadataQuorum")
	flags.StringVar(&o.newImage, "new-image", "", "the `IMAGE` that the quorum is rolled to")
	faultStory := flags.Bool("faults", false, "tell the story of faults instead")
	flags.StringVar(&o.dns, "dns", "", "`ADDRESS` of the cluster's DNS; by default that of the Service kube-system/kube-dns")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.newImage == "" {
		return errors.New("demo: needs --new-image")
	}
	steps, title := story, "demo"
	if *faultStory {
		steps, title = faults, "e2e"
	}
	d, err := newDemo(o, out)
	if err != nil {
		return err
	}
	defer d.close()

	for i, s := range steps {
		d.printf("== step %d/%d: %s", i+1, len(steps), s.name)
		begun := time.Now()
		d.load.mark()
		result, err := s.do(d, ctx)
		if err != nil {
			d.diagnose(context.WithoutCancel(ctx))
			return fmt.Errorf("%s FAILED in step %d/%d (%s) after %s: %w", title, i+1, len(steps), s.name, seconds(time.Since(begun)), err)
		}
		d.rows = append(d.rows, row{s.name, time.Since(begun), d.load.longestGap(), result})
		d.printf("   %s", result)
	}
	return d.summary(title)
}

// row is a line of the table at the end.
type row struct {
	name   string
	took   time.Duration
	gap    time.Duration // the longest time without an acknowledged append; 0 before the client started
	result string
}

// summary prints the table and the last line; it fails if a count is not what it has to be.
func (d *demo) summary(title string) error {
	d.printf("== all %d steps, %s", len(d.rows), seconds(time.Since(d.started)))
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSTEP\tTOOK\tLONGEST GAP\tSEEN")
	for _, r := range d.rows {
		gap := "-"
		if r.gap > 0 {
			gap = fmt.Sprintf("%d ms", r.gap.Milliseconds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.name, seconds(r.took), gap, r.result)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	v, outcome := d.verdict, "passed"
	var err error
	if !v.good() || d.rollElections != d.rolls {
		outcome = "FAILED"
		err = fmt.Errorf("%s FAILED: %s; %d elections in %d rolls", title, v, d.rollElections, d.rolls)
	}
	fmt.Fprintf(d.out, "\n%s %s: voters=%d observers=%d appended=%d lost=%d duplicated=%d rolls=%d rollElections=%d longestRollGapMs=%d\n",
		title, outcome, d.voters, d.observers, v.appended, v.lost, v.duplicated, d.rolls, d.rollElections, d.longestRollGap.Milliseconds())
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

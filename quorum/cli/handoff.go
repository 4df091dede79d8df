package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

type handoffFlags struct {
	to       int32
	dryRun   bool
	maxPause time.Duration
	admin    string
	health   []string
}

func newHandoff(e *Env) *cobra.Command {
	f := handoffFlags{}
	cmd := &cobra.Command{
		Use:   "handoff",
		Short: "Hand leadership over, and measure how long no append could commit",
		Long: `Ask the leader to hand leadership over: to the voter with --to, else to the one that is furthest. Appends are held
while the target gets the last of the log, and go on under the new leader; the command waits for it and prints the gap.

The addresses of ADMIN and HEALTH listeners are those that the voters publish.`,
		Example: `  quorum handoff --bootstrap-controller 127.0.0.1:9093
  quorum handoff --to 2 --dry-run --bootstrap-controller 127.0.0.1:9093`,
		Args: cobra.NoArgs,
	}
	r := e.remoteFlags(cmd, "bootstrap-controller", "CONTROLLER addresses of one or more members: HOST:PORT,…")
	cmd.Flags().Int32Var(&f.to, "to", -1, "node id of the voter that shall lead (default: the best one)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say whether and to whom it would go")
	cmd.Flags().DurationVar(&f.maxPause, "max-pause", 0, "abort if appends had to be held longer (default: the leader's handoff.max.pause.ms)")
	cmd.Flags().StringVar(&f.admin, "admin", "", "ADMIN address of a member, if the voters do not publish theirs")
	cmd.Flags().StringSliceVar(&f.health, "health", nil, "HEALTH addresses of members, if the voters do not publish theirs")
	o := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.to < 0 && cmd.Flags().Changed("to") {
			return fmt.Errorf("--to %d: want a node id of at least 0", f.to)
		}
		if f.maxPause < 0 {
			return fmt.Errorf("--max-pause %s: want a time of at least 0", f.maxPause)
		}
		return e.handoff(cmd.Context(), r, f, *o)
	}
	return cmd
}

func (e *Env) handoff(ctx context.Context, r *remote, f handoffFlags, o output) error {
	servers, err := r.servers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	c := r.client()
	q, err := c.DescribeQuorum(ctx, servers)
	if err != nil {
		return err
	}
	admin := f.admin
	if admin == "" {
		address, ok := q.Endpoint(q.LeaderID, config.Admin)
		if !ok {
			return fmt.Errorf("node %d leads and publishes no ADMIN address: want --admin HOST:PORT", q.LeaderID)
		}
		admin = address.Address()
	}
	request := status.HandoffRequest{ExpectEpoch: q.LeaderEpoch, MaxPause: status.Duration(f.maxPause), DryRun: f.dryRun}
	if f.to >= 0 {
		request.Target = &status.ReplicaKey{NodeID: f.to}
	}
	accepted, err := c.Handoff(ctx, admin, request, false)
	if problem, ok := errors.AsType[*status.Problem](err); ok {
		return fmt.Errorf("node %d refuses to hand over: %s", q.LeaderID, problem.Message)
	}
	if err != nil {
		return err
	}
	if f.dryRun {
		if o == asJSON {
			return printJSON(e.Stdout, accepted)
		}
		_, err = fmt.Fprintf(e.Stdout, "node %d would hand over to node %d\n", accepted.From, accepted.Target.NodeID)
		return err
	}
	health, err := healthAddresses(q, f.health)
	if err != nil {
		return err
	}
	return e.awaitHandoff(ctx, c, accepted, health, o)
}

// healthAddresses are all voters': the new leader need not be the one that was meant.
func healthAddresses(q *client.Quorum, given []string) ([]string, error) {
	if len(given) > 0 {
		return servers("health", given)
	}
	var out []string
	for _, v := range q.Voters {
		if a, ok := q.Endpoint(v.NodeID, config.Health); ok {
			out = append(out, a.Address())
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the handoff has begun, but no voter publishes a HEALTH address to watch it: want --health HOST:PORT,…")
	}
	return out, nil
}

func (e *Env) awaitHandoff(ctx context.Context, c *client.Client, accepted *status.HandoffAccepted, health []string, o output) error {
	h, err := c.AwaitHandoff(ctx, accepted, health, func(h status.Handoff) {
		if o == table && !h.Done() {
			fmt.Fprintf(e.Stderr, "%s\n", strings.ToLower(h.Phase))
		}
	})
	if err != nil {
		return err
	}
	if o == asJSON {
		if err := printJSON(e.Stdout, h); err != nil {
			return err
		}
	}
	switch {
	case h.Phase == status.Aborted:
		return fmt.Errorf("the handoff to node %d was aborted, node %d still leads: %s", h.Target, h.From, h.Message)
	case h.Phase == status.Failed:
		return fmt.Errorf("node %d resigned, but node %d leads epoch %d instead of node %d", h.From, h.To, h.ToEpoch, h.Target)
	case o == asJSON:
		return nil
	}
	gap := "was not measured"
	if h.WriteGap > 0 {
		gap = fmt.Sprintf("%s (measured by the %s)", h.WriteGap.Std().Round(10*time.Microsecond), strings.ReplaceAll(h.MeasuredBy, "-", " "))
	}
	_, err = fmt.Fprintf(e.Stdout, "node %d (epoch %d) handed over to node %d (epoch %d); write gap %s\n", h.From, h.FromEpoch, h.To, h.ToEpoch, gap)
	return err
}

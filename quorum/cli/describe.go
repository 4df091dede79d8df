package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

func newDescribe(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe status|replication",
		Short: "Show who leads and how far each member is",
		Example: `  quorum describe status --bootstrap-controller 127.0.0.1:9093
  quorum describe replication --bootstrap-controller 127.0.0.1:9093 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	describe := func(use, short string, show func(io.Writer, *client.Quorum) error) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Example: "  quorum describe " + use + " --bootstrap-controller 127.0.0.1:9093", Args: cobra.NoArgs}
		r := e.remoteFlags(sub, "bootstrap-controller", "CONTROLLER addresses of one or more members: HOST:PORT,…")
		o := outputFlag(sub)
		sub.RunE = func(cmd *cobra.Command, _ []string) error {
			servers, err := r.servers()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			q, err := r.client().DescribeQuorum(ctx, servers)
			if err != nil {
				return err
			}
			if *o == asJSON {
				return printJSON(e.Stdout, q)
			}
			return show(e.Stdout, q)
		}
		return sub
	}
	cmd.AddCommand(
		describe("status", "Show the leader, the high watermark and the members", showStatus),
		describe("replication", "Show how far each replica is", showReplication),
	)
	return cmd
}

// showStatus prints what kafka-metadata-quorum describe --status does, in the same words.
func showStatus(w io.Writer, q *client.Quorum) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range []struct {
		name  string
		value any
	}{
		{"ClusterId", q.ClusterID},
		{"LeaderId", q.LeaderID},
		{"LeaderEpoch", q.LeaderEpoch},
		{"HighWatermark", q.HighWatermark},
		{"MaxFollowerLag", q.MaxFollowerLag},
		{"MaxFollowerLagTimeMs", q.MaxFollowerLagTimeMs},
		{"CurrentVoters", briefly(q.Voters)},
		{"CurrentObservers", briefly(q.Observers)},
	} {
		fmt.Fprintf(t, "%s:\t%v\n", line.name, line.value)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return showLostDisks(w, q)
}

// showLostDisks tells of voters that run with another directory than the one that votes, and how to let them vote again.
func showLostDisks(w io.Writer, q *client.Quorum) error {
	for _, v := range q.Voters {
		for _, o := range q.Observers {
			if o.NodeID != v.NodeID || o.LastFetchTimestamp <= v.LastFetchTimestamp {
				continue
			}
			_, err := fmt.Fprintf(w, `
Node %d votes with directory %s and runs with directory %s: its disk was lost, or is not mounted.
To let it vote with what it has:
  quorum voter remove --node-id %d --directory-id %s
  quorum voter add --node-id %d
`, v.NodeID, v.DirectoryID, o.DirectoryID, v.NodeID, v.DirectoryID, v.NodeID)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// briefly is the list of members as Kafka's tool prints it: JSON in one line, static voters without a directory id.
func briefly(replicas []client.Replica) string {
	type brief struct {
		ID          int32    `json:"id"`
		DirectoryID string   `json:"directoryId,omitempty"`
		Endpoints   []string `json:"endpoints,omitempty"`
	}
	out := make([]brief, 0, len(replicas))
	for _, r := range replicas {
		b := brief{ID: r.NodeID}
		if r.DirectoryID != (raft.UUID{}).String() {
			b.DirectoryID = r.DirectoryID
		}
		for _, e := range r.Endpoints {
			b.Endpoints = append(b.Endpoints, e.String())
		}
		out = append(out, b)
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

// showReplication prints a line for each replica, with ages in place of Kafka's raw timestamps. Those are by the leader's
// clock, which need not be ours. It tells its own as of the moment it answers: nothing is newer.
func showReplication(w io.Writer, q *client.Quorum) error {
	now := int64(0)
	for _, r := range slices.Concat(q.Voters, q.Observers) {
		now = max(now, r.LastFetchTimestamp, r.LastCaughtUpTimestamp)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE ID\tDIRECTORY ID\tLOG END OFFSET\tLAG\tLAST FETCH\tLAST CAUGHT UP\tSTATUS")
	for _, r := range slices.Concat(q.Voters, q.Observers) {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%s\t%s\t%s\n", r.NodeID, r.DirectoryID, r.LogEndOffset, r.Lag,
			age(r.LastFetchTimestamp, now), age(r.LastCaughtUpTimestamp, now), r.Status)
	}
	return t.Flush()
}

// age says how long before now a timestamp was.
func age(millis, now int64) string {
	if millis < 0 {
		return "never"
	}
	return (time.Duration(now-millis) * time.Millisecond).String() + " ago"
}

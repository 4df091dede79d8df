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
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/storage"
)

func newVoter(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "voter add|remove",
		Short: "Change who votes",
		Example: `  quorum voter add --node-id 3 --bootstrap-controller 127.0.0.1:9093
  quorum voter remove --node-id 0 --bootstrap-controller 127.0.0.1:9093`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newVoterAdd(e), newVoterRemove(e))
	return cmd
}

// unsettled is the exit code of a change that may have been made, or not.
const unsettled = 3

const voterOutcomes = `
The command ends when the change is committed; until then it tries again within --timeout. Exit code 1 says that nothing
was changed, 3 that the time was up, or the command interrupted, before that was known: look with quorum describe status.`

// voterFlags are those of both commands.
type voterFlags struct {
	remote    *remote
	out       *output
	node      int32
	directory string
}

func (e *Env) voterFlags(cmd *cobra.Command) *voterFlags {
	f := &voterFlags{remote: e.remoteFlags(cmd, "bootstrap-controller", "CONTROLLER addresses of one or more members: HOST:PORT,…"), out: outputFlag(cmd)}
	f.remote.timeout = 30 * time.Second // a member may have to catch up first
	cmd.Flags().Lookup("timeout").DefValue = f.remote.timeout.String()
	cmd.Flags().Int32Var(&f.node, "node-id", -1, "node id of the member")
	cmd.Flags().StringVar(&f.directory, "directory-id", "", "directory id of the member (default: as the quorum knows it)")
	return f
}

// voter reads --node-id and --directory-id.
func (f *voterFlags) voter() (v client.Voter, err error) {
	switch {
	case f.node == -1:
		return v, errors.New("--node-id is missing: want the node id of the member, at least 0")
	case f.node < 0:
		return v, fmt.Errorf("--node-id %d: want the node id of the member, at least 0", f.node)
	}
	v.NodeID = f.node
	if f.directory != "" {
		if v.DirectoryID, err = raft.ParseUUID(f.directory); err != nil {
			return v, fmt.Errorf("--directory-id: %w", err)
		}
	}
	return v, nil
}

func newVoterAdd(e *Env) *cobra.Command {
	var file string
	var endpoints []string
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Make a voter of an observer",
		Long: `Make a voter of a member that runs as an observer (quorum format --no-initial-controllers, quorum run). It becomes one
once it is caught up. What is not told of it is asked of the quorum.
` + voterOutcomes,
		Example: `  quorum voter add --node-id 3 --bootstrap-controller 127.0.0.1:9093
  quorum voter add --config member.properties --bootstrap-controller 127.0.0.1:9093
  quorum voter add --node-id 3 --directory-id 4l9dYQEMTIiR0pzmRNAbvg --endpoint CONTROLLER://q-3:9093 --bootstrap-controller q-0:9093`,
		Args: cobra.NoArgs,
	}
	f := e.voterFlags(cmd)
	cmd.Flags().StringVarP(&file, "config", "c", "", "the member's properties file, on the machine where its directory is")
	cmd.Flags().StringSliceVar(&endpoints, "endpoint", nil, "how others reach the member: NAME://HOST:PORT,…, the listener for peers at least")
	cmd.MarkFlagsMutuallyExclusive("config", "node-id")
	cmd.MarkFlagsMutuallyExclusive("config", "directory-id")
	cmd.MarkFlagsMutuallyExclusive("config", "endpoint")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var voter client.Voter
		var err error
		if file != "" {
			voter, err = e.voterOfFile(file)
		} else {
			voter, err = f.voter()
		}
		if err != nil {
			return err
		}
		for _, text := range endpoints {
			name, address, ok := strings.Cut(text, "://")
			host, port, err := config.ParseHostPort(address)
			if !ok || name == "" || err != nil || host == "" || port == 0 {
				return fmt.Errorf("--endpoint %q: want NAME://HOST:PORT, e.g. CONTROLLER://q-3:9093", text)
			}
			voter.Endpoints = append(voter.Endpoints, client.Endpoint{Name: name, Host: host, Port: port})
		}
		return e.changeVoters(cmd.Context(), f, "is a voter", func(ctx context.Context, c *client.Client, servers []string, tell func(string)) (*client.Changed, error) {
			return c.AddVoter(ctx, servers, voter, tell)
		})
	}
	return cmd
}

// voterOfFile tells of a member what its configuration and its directory do.
func (e *Env) voterOfFile(file string) (v client.Voter, err error) {
	cfg, err := e.readConfig(file)
	if err != nil {
		return v, err
	}
	if cfg.ObserverOnly {
		return v, fmt.Errorf("%s sets observer.only=true: such a member cannot become a voter", file)
	}
	meta, err := storage.ReadMeta(e.FS, cfg.LogDir)
	if err != nil {
		return v, err
	}
	v = client.Voter{NodeID: int32(cfg.NodeID), DirectoryID: meta.DirectoryID, ClusterID: meta.ClusterID}
	for _, a := range cfg.Advertised {
		if a.Port == 0 {
			return v, fmt.Errorf("%s advertises %s with port 0: want a fixed port, it is stored in the voter set", file, a.Name)
		}
		v.Endpoints = append(v.Endpoints, client.Endpoint{Name: a.Name, Host: a.Host, Port: a.Port})
	}
	return v, nil
}

func newVoterRemove(e *Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Make an observer of a voter",
		Long: `Make an observer of a voter, running or not. The leader may be removed, too: it resigns once that is committed.

It is refused if the voters that would stay and are up to date are no majority of those that would stay: then the quorum
would be without a leader. --force does it all the same.
` + voterOutcomes,
		Example: `  quorum voter remove --node-id 0 --bootstrap-controller 127.0.0.1:9093
  quorum voter remove --node-id 3 --directory-id 4l9dYQEMTIiR0pzmRNAbvg --bootstrap-controller q-0:9093`,
		Args: cobra.NoArgs,
	}
	f := e.voterFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "remove it even if the quorum would be without a leader then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		voter, err := f.voter()
		if err != nil {
			return err
		}
		return e.changeVoters(cmd.Context(), f, "is no voter", func(ctx context.Context, c *client.Client, servers []string, tell func(string)) (*client.Changed, error) {
			return c.RemoveVoter(ctx, servers, voter, force, tell)
		})
	}
	return cmd
}

// tellEvery is how often progress is printed at most.
const tellEvery = time.Second

func (e *Env) changeVoters(ctx context.Context, f *voterFlags, is string, change func(context.Context, *client.Client, []string, func(string)) (*client.Changed, error)) error {
	servers, err := f.remote.servers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.remote.timeout)
	defer cancel()
	var told time.Time
	did, err := change(ctx, f.remote.client(), servers, func(why string) {
		if *f.out == table && time.Since(told) >= tellEvery {
			told = time.Now()
			fmt.Fprintf(e.Stderr, "waiting: %s\n", why)
		}
	})
	switch {
	case errors.Is(err, client.ErrUnsettled):
		return exitCode{err, unsettled}
	case err != nil:
		return err
	case *f.out == asJSON:
		return printJSON(e.Stdout, did)
	}
	when := "now"
	switch {
	case !did.Changed:
		when = "already"
	case did.AnswerLost:
		when = "now, by an attempt whose answer was lost"
	}
	voters := make([]string, len(did.Voters))
	for i, v := range did.Voters {
		voters[i] = fmt.Sprint(v.NodeID)
	}
	_, err = fmt.Fprintf(e.Stdout, "node %d (directory %s) %s %s; voters: %s\n", did.NodeID, did.DirectoryID, is, when, strings.Join(voters, ", "))
	return err
}

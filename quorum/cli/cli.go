// Package cli is the quorum binary as a function: commands with everything they touch handed in, so that a test runs a
// rendered pod in its own process, unchanged.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/config"
	"github.com/kraft-operator/kraft-operator/quorum/server"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
	"github.com/kraft-operator/kraft-operator/quorum/transport"
)

// Env is all of the world that a command may touch.
type Env struct {
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(name string) (string, bool)
	FS             vfs.FS // configuration, data, termination log: every path goes through it
	Listen         func(ctx context.Context, network, address string) (net.Listener, error)
	Dial           func(ctx context.Context, network, address string) (net.Conn, error)
	Kill           <-chan struct{} // closed: drop dead at once, as by SIGKILL; nil in production
}

// Main runs the process's own arguments in the process's own world.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A second signal ends the process at once, as it would without us.
	context.AfterFunc(ctx, stop)
	return Run(ctx, Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, FS: vfs.OS,
		Listen: (&net.ListenConfig{}).Listen, Dial: transport.Dial,
	})
}

// Run runs one command line to its end and returns the exit code. The end of ctx is SIGTERM.
func Run(ctx context.Context, env Env) int {
	root := newRoot(&env) //nolint:contextcheck // commands get the context from ExecuteContext
	root.SetArgs(env.Args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.Stderr, "quorum: %s\n", oneLine(err))
	if code, ok := errors.AsType[exitCode](err); ok {
		return code.code
	}
	return 1
}

// exitCode is an error that ends the process with a code of its own.
//
//nolint:errname // the word for what it adds to an error
type exitCode struct {
	error
	code int
}

func (e exitCode) Unwrap() error { return e.error }

// oneLine keeps an error to one line: what a person or a log collector can take in at once.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

func newRoot(e *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "quorum",
		Short: "A replicated metadata log: KRaft, Kafka's pull-based Raft",
		Long: `quorum runs a member of a replicated metadata log, and asks and tells a quorum things.

Any Kafka client appends to the log and reads it; Kafka's own quorum tools describe it.`,
		Example: `  quorum dev                                                  # a whole quorum on loopback, to try things out
  quorum append greeting hello --bootstrap 127.0.0.1:9092
  quorum read --bootstrap 127.0.0.1:9092
  quorum describe status --bootstrap-controller 127.0.0.1:9093`,
		Version:           server.Version,
		Args:              cobra.NoArgs,
		SilenceErrors:     true, // Run prints them, once, in one line
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newDev(e), newFormat(e), newRun(e), newDescribe(e), newAppend(e), newRead(e), newHandoff(e), newVoter(e), newDump(e), newVerify(e))
	return root
}

// output is the flag -o, which every command has.
type output string

const (
	table  output = "table"
	asJSON output = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command) *output {
	o := table
	cmd.Flags().VarP(&o, "output", "o", "form of what is printed: table or json")
	return &o
}

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "FORM" }
func (o *output) Set(s string) error {
	if s != string(table) && s != string(asJSON) {
		return errors.New("want table or json")
	}
	*o = output(s)
	return nil
}

// printJSON writes v for programs and people: indented, one value.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// readConfig reads and checks a member's properties file.
func (e *Env) readConfig(name string) (*config.Config, error) {
	data, err := vfs.ReadFile(e.FS, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	hostname, ok := e.LookupEnv("HOSTNAME") // a container's name
	if !ok {
		hostname, _ = os.Hostname()
	}
	return config.Parse(name, data, config.Host{LookupEnv: e.LookupEnv, Hostname: hostname})
}

// cause drops the path that package os repeats.
func cause(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// servers reads a list of HOST:PORT flags.
func servers(flag string, values []string) ([]string, error) {
	var out []string
	for _, v := range values {
		for a := range strings.SplitSeq(v, ",") {
			if host, port, err := config.ParseHostPort(strings.TrimSpace(a)); err != nil || host == "" || port == 0 {
				return nil, fmt.Errorf("--%s %q: want HOST:PORT,…", flag, a)
			}
			out = append(out, strings.TrimSpace(a))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--%s is missing: want HOST:PORT,…", flag)
	}
	return out, nil
}

// remote holds the flags of commands that ask a running quorum.
type remote struct {
	env       *Env
	flag      string // name of the bootstrap flag
	bootstrap []string
	topic     string
	timeout   time.Duration
}

func (e *Env) remoteFlags(cmd *cobra.Command, flag, usage string) *remote {
	r := &remote{env: e, flag: flag}
	cmd.Flags().StringSliceVar(&r.bootstrap, flag, nil, usage)
	cmd.Flags().StringVar(&r.topic, "topic", "__cluster_metadata", "name of the quorum's topic (topic.name)")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 10*time.Second, "give up after this long without an answer")
	return r
}

func (r *remote) client() *client.Client {
	return &client.Client{Dial: r.env.Dial, Topic: r.topic, Timeout: min(r.timeout, 3*time.Second)}
}

func (r *remote) servers() ([]string, error) {
	if r.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %s: want more than nothing, e.g. 10s", r.timeout)
	}
	return servers(r.flag, r.bootstrap)
}

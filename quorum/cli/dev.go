package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// newDev is `quorum dev`: the quick start.
func newDev(env *Env) *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole quorum on loopback in this process",
		Long: `Run voters and observers on loopback in this process, and print how to reach them. Ctrl-C ends it.

Without --dir the data lives in a temporary directory and is removed at the end. With --dir it stays, and the next
quorum dev with the same --dir goes on with it, on the same ports.`,
		Example: `  quorum dev
  quorum dev --voters 5 --observers 2 --dir ./data --port-base 9092`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return env.dev(c.Context(), o) },
	}
	o.form = outputFlag(c)
	c.Flags().IntVar(&o.voters, "voters", 3, "number of voters, 1 to 9")
	c.Flags().IntVar(&o.observers, "observers", 1, "number of observers, 0 to 16")
	c.Flags().StringVar(&o.dir, "dir", "", "where the data stays (default: a temporary directory)")
	c.Flags().IntVar(&o.portBase, "port-base", 0, "first of the ports to use, four for each member (default: any free ports)")
	c.Flags().StringVar(&o.level, "log-level", "warn", "what the members log: debug, info, warn or error")
	return c
}

type devOptions struct {
	voters, observers int
	dir               string
	portBase          int
	level             string
	form              *output
}

func (o devOptions) check() error {
	members := o.voters + o.observers
	switch {
	case o.voters < 1 || o.voters > 9:
		return fmt.Errorf("--voters is %d: want 1 to 9", o.voters)
	case o.observers < 0 || o.observers > 16:
		return fmt.Errorf("--observers is %d: want 0 to 16", o.observers)
	case o.portBase != 0 && (o.portBase < 1024 || o.portBase+members*len(devListeners) > 65536):
		return fmt.Errorf("--port-base is %d: want 1024 to %d for %d members", o.portBase, 65536-members*len(devListeners), members)
	}
	return nil
}

func (env *Env) dev(ctx context.Context, o devOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	dir, kept := o.dir, o.dir != ""
	if !kept {
		dir = path.Join(os.TempDir(), fmt.Sprintf("quorum-dev-%d-%d", os.Getpid(), time.Now().UnixNano()))
		defer func() { err = errors.Join(err, removeAll(env.FS, dir)) }()
	} else if !path.IsAbs(dir) {
		wd, err := os.Getwd()
		if err != nil {
			return err
		}
		dir = path.Join(wd, dir)
	}
	q, err := openDevQuorum(ctx, env, dir, o.voters, o.observers, o.portBase)
	if err != nil {
		return err
	}
	if err := q.introduce(kept, *o.form); err != nil {
		return err
	}
	if err := q.run(ctx, o.level); err != nil {
		return err
	}
	if kept && *o.form == table {
		fmt.Fprintf(env.Stdout, "\nstopped; the data is in %s\n", dir)
	}
	return nil
}

// introduce prints how to reach the quorum.
func (q *devQuorum) introduce(kept bool, form output) error {
	if form == asJSON {
		return printJSON(q.env.Stdout, devAddresses{
			Client: q.addresses(config.Client), Controller: q.addresses(config.Controller),
			Admin: q.addresses(config.Admin), Health: q.addresses(config.Health), Dir: q.dir,
		})
	}
	clients := strings.Join(q.addresses(config.Client), ",")
	controllers := strings.Join(q.addresses(config.Controller), ",")
	topic := q.members[0].cfg.TopicName
	fate := "removed at the end"
	if kept {
		fate = "kept"
	}
	newcomer := "" // nobody could become a voter
	if q.count(true) > 0 {
		newcomer = fmt.Sprintf("  quorum voter add --node-id %d --bootstrap-controller %s\n", firstObserver, q.address(q.members[0], config.Controller))
	}
	one, oneController := q.address(q.members[0], config.Client), q.address(q.members[0], config.Controller)
	_, err := fmt.Fprintf(q.env.Stdout, `%s, %s; data in %s (%s)

  CLIENT      %s
  CONTROLLER  %s
  HEALTH      %s

Any Kafka client:
  kcat -b %s -t %s -p 0 -P -K :          # key:value lines from standard input
  kcat -b %s -t %s -p 0 -C -o beginning -e

Our own:
  quorum append key value --bootstrap %s
  quorum read --follow --bootstrap %s
  quorum describe status --bootstrap-controller %s
  quorum handoff --bootstrap-controller %s
%s
Ctrl-C ends it.
`,
		plural(q.count(false), "voter"), plural(q.count(true), "observer"), q.dir, fate,
		clients, controllers, strings.Join(q.addresses(config.Health), ","),
		one, topic, one, topic, one, one, oneController, oneController, newcomer)
	return err
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// devAddresses is what quorum dev -o json prints: the members' listeners, voters first.
type devAddresses struct {
	Client     []string `json:"client"`
	Controller []string `json:"controller"`
	Admin      []string `json:"admin"`
	Health     []string `json:"health"`
	Dir        string   `json:"dir"`
}

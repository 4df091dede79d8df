package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/server"
	"github.com/kraft-operator/kraft-operator/quorum/storage/vfs"
)

// terminationLog is where Kubernetes looks for a container's last words. It is only written where it exists.
const terminationLog = "/dev/termination-log"

// newRun is `quorum run`: one member, until it is told to stop.
func newRun(env *Env) *cobra.Command {
	var file, level, format string
	c := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run one member of a quorum",
		Long: `Run one member of a quorum until SIGINT or SIGTERM. A leader that is told to stop hands its leadership over first.

The directory must be formatted (quorum format), unless the file sets cluster.id: then an empty directory becomes a new
member of that quorum, without a vote. A fault that ends the process is one upper-case token and one sentence on standard
error and in /dev/termination-log.`,
		Example: `  quorum run --config /etc/quorum/quorum.properties`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			err := env.runMember(c.Context(), file, level, format)
			if fatal, ok := errors.AsType[*server.Fatal](err); ok {
				env.lastWords(fatal)
			}
			if errors.Is(err, server.ErrKilled) {
				return exitCode{err, 128 + int(syscall.SIGKILL)}
			}
			return err
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "properties file (required)")
	c.Flags().StringVar(&level, "log-level", "", "debug, info, warn or error; goes before log.level of the file")
	c.Flags().StringVar(&format, "log-format", "", "text or json; goes before log.format of the file")
	_ = c.MarkFlagRequired("config")
	return c
}

func (env *Env) runMember(ctx context.Context, file, level, format string) error {
	cfg, err := env.readConfig(file)
	if err != nil {
		return &server.Fatal{Token: server.ConfigInvalid, Message: err.Error(), Err: err}
	}
	log, levels, err := newLogger(env.Stderr, cmp.Or(level, cfg.LogLevel), cmp.Or(format, cfg.LogFormat))
	if err != nil {
		return &server.Fatal{Token: server.ConfigInvalid, Message: err.Error(), Err: err}
	}
	return server.Run(ctx, server.Options{
		Config: cfg,
		FS:     env.FS,
		Log:    log,
		Level:  levels,
		Listen: env.Listen,
		Dial:   env.Dial,
		Kill:   env.Kill,
	})
}

// newLogger writes to w. The level can be changed while it is in use.
func newLogger(w io.Writer, level, format string) (*slog.Logger, *slog.LevelVar, error) {
	levels := new(slog.LevelVar)
	if err := levels.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: levels}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), levels, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), levels, nil
	default:
		return nil, nil, fmt.Errorf("log format %q: want text or json", format)
	}
}

// lastWords tells Kubernetes why the process ends. What goes wrong with that is no news: standard error has it too.
func (env *Env) lastWords(fatal *server.Fatal) {
	if there, _ := vfs.Exists(env.FS, terminationLog); there {
		_ = vfs.WriteFile(env.FS, terminationLog, []byte(fatal.Error()+"\n"))
	}
}

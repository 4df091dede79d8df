package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/client"
)

// maxLine bounds a line of standard input: the largest batch, and no more can be appended at once.
const maxLine = 8 << 20

// progressEvery is how often a long append says where it is.
const progressEvery = 2 * time.Second

// appended is what -o json prints.
type appended struct {
	Records     int   `json:"records"`
	FirstOffset int64 `json:"firstOffset"` // -1: nothing was appended
	LastOffset  int64 `json:"lastOffset"`
}

func newAppend(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "append [KEY VALUE]",
		Short: "Append one record, or lines of standard input",
		Long: `Append one record, or each line of standard input: KEY, a tab, VALUE. A line without a tab deletes its key.

A record that was appended is on a majority of the voters' disks. Records keep the order of their lines. If one fails,
the command stops and says how many were appended; one that nobody acknowledged in time may have been appended all the same.`,
		Example: `  quorum append greeting hello --bootstrap 127.0.0.1:9092
  printf 'a\t1\nb\t2\na\n' | quorum append --bootstrap 127.0.0.1:9092`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) != 0 && len(args) != 2:
				return fmt.Errorf("%d arguments: want KEY and VALUE, or none and lines of standard input", len(args))
			case len(args) == 2 && args[0] == "":
				return errors.New("the key is empty: want KEY and VALUE")
			}
			return nil
		},
	}
	r := e.remoteFlags(cmd, "bootstrap", "CLIENT addresses of one or more members: HOST:PORT,…")
	o := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		log, err := r.openLog(cmd.Context(), client.FromEarliest)
		if err != nil {
			return err
		}
		defer log.Close()
		a := &appender{log: log, timeout: r.timeout, stderr: e.Stderr, result: appended{FirstOffset: -1, LastOffset: -1}}
		if len(args) == 2 {
			a.one(cmd.Context(), []byte(args[0]), []byte(args[1]))
		} else {
			a.lines(cmd.Context(), e.Stdin)
		}
		err = a.wait(cmd.Context())
		if err != nil {
			return fmt.Errorf("append: %w (%d records were appended)", err, a.result.Records)
		}
		if *o == asJSON {
			return printJSON(e.Stdout, a.result)
		}
		switch a.result.Records {
		case 0:
			_, err = fmt.Fprintln(e.Stdout, "appended nothing: standard input was empty")
		case 1:
			_, err = fmt.Fprintf(e.Stdout, "appended at offset %d\n", a.result.FirstOffset)
		default:
			_, err = fmt.Fprintf(e.Stdout, "appended %d records, offsets %d to %d\n", a.result.Records, a.result.FirstOffset, a.result.LastOffset)
		}
		return err
	}
	return cmd
}

// openLog opens the log and makes sure that somebody answers.
func (r *remote) openLog(ctx context.Context, from int64) (*client.Log, error) {
	servers, err := r.servers()
	if err != nil {
		return nil, err
	}
	log, err := r.client().OpenLog(servers, from)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if err := log.Ping(ctx); err != nil {
		log.Close()
		return nil, fmt.Errorf("no member answers: %w", err)
	}
	return log, nil
}

// appender appends many records at once and counts what came of them.
type appender struct {
	log     *client.Log
	timeout time.Duration // without any progress
	stderr  io.Writer

	mu       sync.Mutex
	result   appended
	err      error // the first failure
	reported time.Time
}

func (a *appender) one(ctx context.Context, key, value []byte) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	a.log.AppendAsync(ctx, key, value, func(offset int64, err error) {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the time is up, whatever the last attempt came to
		}
		cancel()
		a.done(offset, err)
	})
}

// lines appends each line. It stops reading at the first failure.
func (a *appender) lines(ctx context.Context, in io.Reader) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	number := 0
	for lines.Scan() && !a.failed() {
		number++
		key, value, hasValue := bytes.Cut(bytes.Clone(lines.Bytes()), []byte{'\t'})
		if !hasValue {
			value = nil
		}
		if len(key) == 0 {
			a.done(-1, fmt.Errorf("line %d: the key is empty: want KEY, a tab, VALUE", number))
			return
		}
		a.one(ctx, key, value)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes", maxLine)
		}
		a.done(-1, fmt.Errorf("line %d: %w", number+1, err))
	}
}

func (a *appender) failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil
}

// done counts one record. They end in order.
func (a *appender) done(offset int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("nothing was acknowledged within %s", a.timeout)
			if why := a.log.Trouble(); why != nil {
				err = fmt.Errorf("%w: %w", err, why)
			}
		}
		if a.err == nil {
			a.err = err
		}
		return
	}
	if a.result.Records++; a.result.FirstOffset < 0 {
		a.result.FirstOffset = offset
		a.reported = time.Now()
	}
	a.result.LastOffset = offset
	if now := time.Now(); now.Sub(a.reported) >= progressEvery {
		a.reported = now
		fmt.Fprintf(a.stderr, "appended %d records, up to offset %d\n", a.result.Records, offset)
	}
}

func (a *appender) wait(ctx context.Context) error {
	flushed := a.log.Flush(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	return flushed
}

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kraft-operator/kraft-operator/quorum/client"
)

// record is a line of -o json. Bytes that are no UTF-8 are shown with replacement characters, as JSON has only text.
type record struct {
	Offset    int64   `json:"offset"`
	Epoch     int32   `json:"epoch"`
	Timestamp int64   `json:"timestamp"` // milliseconds since 1970
	Key       *string `json:"key"`
	Value     *string `json:"value"` // null: the key is deleted
}

func newRead(e *Env) *cobra.Command {
	var from string
	var follow bool
	cmd := &cobra.Command{
		Use:   "read",
		Short: "Print the records of the log",
		Long: `Print the records of the log in order: KEY, a tab, VALUE; only the key if it is deleted. What is not printable text is
quoted as in Go. With -o json each record is one line of JSON.

It ends at what is committed when it begins; with --follow it waits for more until it is interrupted.`,
		Example: `  quorum read --bootstrap 127.0.0.1:9092
  quorum read --from latest --follow -o json --bootstrap 127.0.0.1:9092`,
		Args: cobra.NoArgs,
	}
	r := e.remoteFlags(cmd, "bootstrap", "CLIENT addresses of one or more members: HOST:PORT,…")
	cmd.Flags().StringVar(&from, "from", "earliest", "where to begin: earliest, latest or an offset")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for new records")
	o := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		begin, err := parseFrom(from)
		if err != nil {
			return err
		}
		return e.read(cmd.Context(), r, begin, follow, *o)
	}
	return cmd
}

func parseFrom(from string) (int64, error) {
	switch from {
	case "earliest":
		return client.FromEarliest, nil
	case "latest":
		return client.FromLatest, nil
	}
	offset, err := strconv.ParseInt(from, 10, 64)
	if err != nil || offset < 0 {
		return 0, fmt.Errorf("--from %q: want earliest, latest or an offset of at least 0", from)
	}
	return offset, nil
}

func (e *Env) read(ctx context.Context, r *remote, from int64, follow bool, o output) error {
	log, err := r.openLog(ctx, from)
	if err != nil {
		return err
	}
	defer log.Close()
	until := int64(-1)
	if !follow {
		asking, cancel := context.WithTimeout(ctx, r.timeout)
		until, err = log.End(asking)
		cancel()
		if err != nil {
			return fmt.Errorf("read: ask for the log's end: %w", err)
		}
		if until == 0 || from == client.FromLatest || from == until {
			return nil
		}
		if from > until {
			return fmt.Errorf("read: OFFSET_OUT_OF_RANGE: the log ends at offset %d", until)
		}
	}
	out := bufio.NewWriter(e.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)

	// Without --follow the end is known to exist, so that silence is a failure.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errSilent := fmt.Errorf("nothing came for %s", r.timeout)
	silence := time.AfterFunc(r.timeout, func() {
		if !follow {
			cancel(errSilent)
		}
	})
	defer silence.Stop()

	err = log.Read(ctx, until, func(rec client.Record) error {
		silence.Reset(r.timeout)
		if o == asJSON {
			err = encoder.Encode(record{rec.Offset, rec.Epoch, rec.Timestamp.UnixMilli(), text(rec.Key), text(rec.Value)})
		} else {
			_, err = out.WriteString(line(rec))
		}
		if err == nil && follow {
			err = out.Flush() // somebody watches
		}
		return err
	})
	if errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
			return fmt.Errorf("read: %w", cause)
		}
		return nil // interrupted: that is how --follow ends
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	return new(string(b))
}

func line(r client.Record) string {
	s := printable(r.Key)
	if r.Value != nil {
		s += "\t" + printable(r.Value)
	}
	return s + "\n"
}

// printable returns text as it is, and quotes what would break a line or a terminal.
func printable(b []byte) string {
	if utf8.Valid(b) {
		plain := true
		for _, r := range string(b) {
			plain = plain && strconv.IsPrint(r)
		}
		if plain {
			return string(b)
		}
	}
	return strconv.Quote(string(b))
}

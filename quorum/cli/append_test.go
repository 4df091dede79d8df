package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAppendSaysThatTheDiskIsFull: a member that refuses is asked again until the time is up, and then quoted.
func TestAppendSaysThatTheDiskIsFull(t *testing.T) {
	const reserve = "9000000000000000000"
	c := newContainer(t, func(values map[string]string) { values["log.reserve.bytes"] = reserve })
	c.runFor(func(*kgo.Client) {
		says := "quorum: no member answers: "
		for strings.HasPrefix(says, "quorum: no member answers: ") { // it is about to start
			env := c.env("append", "greeting", "hello", "--bootstrap", c.clients, "--timeout", "2s")
			if code := Run(t.Context(), env); code != 1 {
				t.Fatalf("append to a full disk: code %d", code)
			}
			says = env.Stderr.(*bytes.Buffer).String()
		}
		want := fmt.Sprintf("quorum: append: nothing was acknowledged within 2s: %s answers KAFKA_STORAGE_ERROR: "+
			"its disk is full, to log.reserve.bytes=%s, or has refused a write: free some space, or make it larger (0 records were appended)\n", c.clients, reserve)
		if says != want {
			t.Errorf("\n got %swant %s", says, want)
		}
	})
}

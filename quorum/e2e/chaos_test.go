//go:build e2e

package e2e

import (
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

var (
	chaos = flag.Duration("chaos", 20*time.Second, "how long TestChaos goes on")
	seed  = flag.Uint64("seed", 0, "of TestChaos; 0: a new one, which it prints")
)

// Members are killed, stopped and frozen at random, one or two at a time, while clients append all the time. Nothing that
// was acknowledged may be lost, doubled or out of order, and in the end all members have the same log.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with -seed %d (the machine's own timing is not repeated)", *seed)
	dice := rand.New(rand.NewPCG(*seed, 0))
	q := start(t, 3)
	q.settled()
	l := begin(t, q.bootstrap(), *writers)
	faults := map[string]int{}
	for until := time.Now().Add(*chaos); time.Now().Before(until); {
		p := q.members[dice.IntN(len(q.members))]
		other := q.members[dice.IntN(len(q.members))]
		pause := time.Duration(dice.IntN(1500)) * time.Millisecond
		switch dice.IntN(5) {
		case 0:
			faults["SIGKILL"]++
			p.kill()
			time.Sleep(pause)
			p.start()
		case 1:
			faults["SIGTERM"]++
			p.terminate()
			p.start()
		case 2:
			faults["SIGSTOP"]++
			p.freeze(2 * pause)
		case 3:
			faults["SIGKILL of two"]++
			p.kill()
			other.kill()
			time.Sleep(pause / 4)
			p.start()
			if other != p {
				other.start()
			}
		case 4:
			faults["SIGKILL beside a SIGSTOP"]++
			p.kill()
			if other != p {
				other.freeze(pause)
			}
			p.start()
		}
		if dice.IntN(3) == 0 {
			q.settled()
		}
		time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond)
	}
	q.settled()
	l.run(*steady)
	l.end()
	_, view := q.settled()
	t.Logf("epoch %d after %v", view.Epoch, faults)
}

// freeze is SIGSTOP and, after a while, SIGCONT: a process that lives but does not answer.
func (p *process) freeze(d time.Duration) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	time.Sleep(d)
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

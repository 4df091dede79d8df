package sim

import (
	"time"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// search is a client's search for the leader, as Kafka's clients go about it: of two members that name one the newer epoch
// is believed (KIP-320), and who does not answer is left alone for a while (reconnect.backoff.ms).
type search struct {
	c     *client
	at    int             // place of the member that is thought to lead
	epoch raft.Epoch      // the newest that anybody has named a leader of
	quiet []time.Duration // by place: until when that member is left alone
}

func newSearch(c *client, at int) search {
	return search{c: c, at: at, quiet: make([]time.Duration, len(c.w.members))}
}

// call sends a request to the leader; the answer is nil if none came. Who kept the client waiting for nothing is left
// alone for twice as long.
func (s *search) call(call clientCall, then func(answer any)) {
	to, asked := s.at, s.c.w.now
	s.c.call(to, call, func(answer any) {
		if answer == nil {
			s.quiet[to] = s.c.w.now + 2*(s.c.w.now-asked)
		}
		then(answer)
	})
}

// redirect looks for the leader where an answer says, or at the next member. A nil header means that none came.
func (s *search) redirect(h *raft.Header) {
	if i := s.named(h); i >= 0 {
		s.at, s.epoch = i, max(s.epoch, h.Epoch)
		return
	}
	s.at = s.next()
}

// named is the place of the leader that an answer names; -1 if it names none, or nobody to go to.
func (s *search) named(h *raft.Header) int {
	if h == nil {
		return -1
	}
	for i, m := range s.c.w.members {
		if m.id == h.Leader && i != s.at && (!s.c.w.plan.nimble || h.Epoch > s.epoch || h.Epoch == s.epoch && s.willing(i)) {
			return i
		}
	}
	return -1
}

func (s *search) willing(i int) bool { return !s.c.w.plan.nimble || s.c.w.now >= s.quiet[i] }

// next goes round the members: past those that are left alone, if there are others.
func (s *search) next() int {
	candidates := s.c.w.plan.voters
	if s.c.w.plan.spares > 0 {
		candidates = len(s.c.w.members) // who votes may change; anybody knows who leads
	}
	for step := 1; step < candidates; step++ {
		if i := (s.at + step) % candidates; s.willing(i) {
			return i
		}
	}
	return (s.at + 1) % candidates
}

package server

import (
	"testing"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
)

// A request that was handed in just as the loop ended is turned away at once. It was once left lying, and then its client
// waited for the end of the drain, a whole second, while the next leader was there after four milliseconds.
func TestRequestThatCameAsTheLoopEndedIsTurnedAway(t *testing.T) {
	s := &server{inbox: make(chan func(), inboxSize), done: make(chan struct{}), loop: loop{waiting: map[raft.RequestID]waiter{}}}
	dropped := make(chan struct{})
	request := func() {
		s.ask(waiter{
			reply: func(any) { t.Error("answered by a replica that has stopped") },
			drop:  func() { close(dropped) },
		}, func(raft.RequestID) replica.Event {
			t.Error("the replica was asked after its loop had ended")
			return replica.Tick{}
		})
	}
	if !s.post(request) {
		t.Fatal("not taken while the loop runs")
	}
	close(s.done)
	s.dropWaiting()
	for range 100 {
		if s.post(func() {}) {
			t.Fatal("taken after the loop has ended")
		}
	}
	s.turnAway(dropped) // returns once the request was let go
}

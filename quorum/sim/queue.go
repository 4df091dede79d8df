package sim

import "time"

// event is something that will happen at a time of the world. Events of one instant happen in the order of their making.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
	// to and life name the process that it happens to: if that one has died by then, it does not happen; while it is
	// paused, it waits.
	to   *member
	life int
	tick bool // a deadline: what has arrived in a pause comes before it (rule 7 of package raft)
}

// queue is a heap of events.
type queue []event

func (q queue) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *queue) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *queue) pop() event {
	h := *q
	first := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h[n] = event{}
	h = h[:n]
	*q = h
	for i := 0; ; {
		small := i
		for _, c := range [...]int{2*i + 1, 2*i + 2} {
			if c < n && h.less(c, small) {
				small = c
			}
		}
		if small == i {
			return first
		}
		h[i], h[small] = h[small], h[i]
		i = small
	}
}

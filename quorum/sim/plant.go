package sim

import (
	"github.com/kraft-operator/kraft-operator/quorum/raft"
	"github.com/kraft-operator/kraft-operator/quorum/replica"
	"github.com/kraft-operator/kraft-operator/quorum/state"
)

// plant is a bug put into the driver or the disk on purpose, to see whether the oracle finds it (planted_border_test.go).
// A nil plant, and a nil field, does nothing.
type plant struct {
	dirUnsynced  func(dir string, newState bool) bool        // true: SyncDir does nothing
	noSync       func(name string) bool                      // true: Sync does nothing
	noTruncate   func(name string) bool                      // true: Truncate does nothing
	afterCrash   func(m *member, before *raft.ElectionState) // spoils the disk of a dead process
	send         func(m *member, s *raft.Send)
	swallows     func(m *member, s *raft.Send) bool // true: it gets lost on its way
	receive      func(m *member, r raft.Request) raft.Request
	answer       func(m *member, a *replica.Answer)
	clientAnswer func(m *member, request replica.Event) any // an answer made up at once; nil: none
	fetched      func(m *member, f *replica.Fetched)
	chunk        func(data []byte) // of a snapshot, on its way
	producers    func(*state.Options)
	clientBatch  func(raw []byte) []byte
	script       func(w *world) // faults of its own
	pipelined    bool           // several requests on one connection to a peer (against rule 6 of package raft)
}

func (p *plant) keepsDirUnsynced(dir string, newState bool) bool {
	return p != nil && p.dirUnsynced != nil && p.dirUnsynced(dir, newState)
}

func (p *plant) skipsSync(name string) bool {
	return p != nil && p.noSync != nil && p.noSync(name)
}

func (p *plant) skipsTruncate(name string) bool {
	return p != nil && p.noTruncate != nil && isSegment(name) && p.noTruncate(name)
}

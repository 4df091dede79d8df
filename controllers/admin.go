package controllers

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/kraft-operator/kraft-operator/controllers/resources"
	quorum "github.com/kraft-operator/kraft-operator/quorum/client"
	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// Target is a member as the operator reaches it: at the address that its Pod
// has now. Names in DNS may still point to the Pod before it.
type Target struct {
	NodeID int32
	IP     string
	Host   string // its name: what TLS will ask for
}

// QuorumAdmin is what the reconciler needs from a running quorum.
type QuorumAdmin interface {
	// Look asks all targets at once for their own view. The answers are in the
	// targets' order; nil stands for a member that didn't answer in time.
	Look(ctx context.Context, targets []Target) []*status.Member
	// HandOff asks a leader to begin a transfer of leadership. A *status.Problem
	// is the leader's refusal.
	HandOff(ctx context.Context, leader Target, request status.HandoffRequest) (*status.HandoffAccepted, error)
}

const (
	// lookTimeout bounds one look: a member that takes longer to tell its own
	// state is as good as gone, and one pass must not wait for the slowest.
	lookTimeout    = time.Second
	handOffTimeout = 5 * time.Second // to begin; the handoff itself is polled for
)

// admin asks the members' HEALTH and ADMIN listeners.
type admin struct{ look, handOff *quorum.Client }

// NewAdmin returns a QuorumAdmin that dials with the given function; nil is
// the usual one.
func NewAdmin(dial quorum.DialFunc) QuorumAdmin {
	return admin{
		look:    &quorum.Client{Dial: dial, Timeout: lookTimeout},
		handOff: &quorum.Client{Dial: dial, Timeout: handOffTimeout},
	}
}

func (a admin) Look(ctx context.Context, targets []Target) []*status.Member {
	addresses := make([]string, len(targets))
	for i, t := range targets {
		addresses[i] = t.address(resources.HealthPort)
	}
	return a.look.Look(ctx, addresses)
}

// HandOff asks this member and no other: a leader that has just resigned would
// name its successor, which must not be asked to hand over in its place.
func (a admin) HandOff(ctx context.Context, leader Target, request status.HandoffRequest) (*status.HandoffAccepted, error) {
	return a.handOff.Handoff(ctx, leader.address(resources.AdminPort), request, true)
}

func (t Target) address(port int) string { return net.JoinHostPort(t.IP, strconv.Itoa(port)) }

package client

import (
	"context"
	"slices"
	"sync"

	"github.com/kraft-operator/kraft-operator/quorum/status"
)

// Look asks several members at once for their own view, by their HEALTH addresses. The answers are in the order of the
// addresses; nil stands for a member that did not answer in time.
func (c *Client) Look(ctx context.Context, addresses []string) []*status.Member {
	views := make([]*status.Member, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			if m, err := c.Status(ctx, address); err == nil {
				views[i] = m
			}
		})
	}
	wg.Wait()
	return views
}

// Agreement is what a majority of the voters confirms.
type Agreement struct {
	Leader int32 // -1: nothing is confirmed
	Epoch  int32
	By     []int32 // voters that say so, the leader included, sorted
	Voters int     // size of the leader's voter set
}

// Agree says who leads, if one member holds itself for the leader of an epoch, has committed something in it, and a
// majority of its voters, itself included, names it in the same epoch. A leader that was cut off cannot be confirmed:
// the majority is in a newer epoch.
func Agree(views []*status.Member) Agreement {
	none := Agreement{Leader: -1, Epoch: -1}
	var leader *status.Member
	for _, m := range views {
		if m != nil && m.Role == "Leader" && (leader == nil || m.Epoch > leader.Epoch) {
			leader = m
		}
	}
	if leader == nil || !leader.EpochCommitted {
		return none
	}
	a := Agreement{Leader: leader.NodeID, Epoch: leader.Epoch, Voters: len(leader.Voters)}
	for _, m := range views {
		if m == nil || m.ClusterID != leader.ClusterID || !votes(leader, m) || slices.Contains(a.By, m.NodeID) {
			continue
		}
		if m.Epoch > leader.Epoch {
			return none // it has been replaced, or is about to be
		}
		if m.Leader != nil && m.Leader.NodeID == leader.NodeID && m.Leader.Epoch == leader.Epoch {
			a.By = append(a.By, m.NodeID)
		}
	}
	if len(a.By) < a.Voters/2+1 {
		return none
	}
	slices.Sort(a.By)
	return a
}

// votes reports whether m is in the leader's voter set, under its present directory.
func votes(leader, m *status.Member) bool {
	return slices.ContainsFunc(leader.Voters, func(v status.Replica) bool {
		return v.NodeID == m.NodeID && (v.DirectoryID == "" || v.DirectoryID == m.DirectoryID)
	})
}

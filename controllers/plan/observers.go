package plan

import (
	"slices"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// scaleObservers fills observers up to the wanted number, or parks the highest. It's independent of voters: it runs in
// every pass, also while a roll waits. A claim is parked before its Pod goes, so that whatever happens in between, the
// member doesn't come back.
func scaleObservers(o Observation) []Action {
	var acts []Action
	if !observersMayExist(o) {
		return nil
	}
	slots := observerSlots(o)
	have, want := len(slots), int(o.Want.Observers)
	for _, id := range freeObserverIDs(o, want-have) {
		acts = append(acts, CreateClaim{
			claimName(o.Want.Name, o.Want.UID, id, 0), id,
			o.Identity.ClusterID, o.Identity.Image, withoutClaimUIDs(o.Identity.Voters),
		})
	}
	for _, c := range slices.Backward(slots) {
		if have > want && !c.Deleting {
			acts = append(acts, ParkClaim{c.Name, c.UID})
			have--
		}
	}
	return append(acts, clearAway(o)...)
}

// observersMayExist: an observer's claim is proof that the quorum has lived (see adopt), so none is made before it can
// have.
func observersMayExist(o Observation) bool {
	return o.Identity.Sealed && slices.ContainsFunc(o.Claims, func(c Claim) bool { return c.FormattedFor != "" })
}

// clearAway removes the Pods of observers that are no more, and their claims if storage.whenScaled says so.
func clearAway(o Observation) []Action {
	var acts []Action
	slots := observerSlots(o)
	for _, p := range o.Pods {
		if p.NodeID < v1alpha1.FirstObserverID || p.Terminating {
			continue
		}
		if !slices.ContainsFunc(slots, func(c *Claim) bool { return c.NodeID == p.NodeID }) {
			acts = append(acts, DeletePod{p.Name, p.UID, p.NodeID})
		}
	}
	for _, c := range o.Claims {
		if c.NodeID >= v1alpha1.FirstObserverID && c.Parked && !c.Deleting && o.Want.DeleteWhenScaled && o.pod(c.NodeID) == nil {
			acts = append(acts, DeleteClaim{c.Name, c.UID})
		}
	}
	return acts
}

// freeObserverIDs are the n lowest ids that no Pod, claim (parked included), voter or observer of the quorum holds.
func freeObserverIDs(o Observation, n int) []int32 {
	held := map[int32]bool{}
	for _, c := range o.Claims {
		held[c.NodeID] = true
	}
	for _, p := range o.Pods {
		held[p.NodeID] = true
	}
	if o.View != nil {
		for _, v := range o.View.Voters {
			held[v.NodeID] = true
		}
	}
	var ids []int32
	for id := v1alpha1.FirstObserverID; len(ids) < n; id++ {
		if !held[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// withoutClaimUIDs is the plan as it's written on claims: what the seal adds is the record's alone.
func withoutClaimUIDs(voters []InitialVoter) []InitialVoter {
	out := slices.Clone(voters)
	for i := range out {
		out[i].ClaimUID = ""
	}
	return out
}

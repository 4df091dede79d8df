package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// formatRetry spaces out attempts to format a claim.
const formatRetry = 10 * time.Second

// bootstrap brings a quorum from nothing, or from claims that are there, to "every initial claim is formatted". The
// order makes every crash harmless: the record first, then all claims, then the seal that says so, and only then does
// anything format. So a claim that is missing after the seal was lost, and is not made again under the same identity.
func bootstrap(o Observation) (Step, bool) {
	if o.Identity == nil {
		return establish(o)
	}
	if !o.Identity.Sealed {
		return initialClaims(o)
	}
	return format(o)
}

// establish writes the record: a new one, or the one that the claims tell of.
func establish(o Observation) (Step, bool) {
	var claims []Claim
	for _, c := range o.Claims {
		if c.Parked {
			continue
		}
		if c.Deleting {
			return wait(v1alpha1.ReasonClaimDeleting, "claim %s is being deleted; waiting until it's gone", c.Name)
		}
		claims = append(claims, c)
	}
	if len(claims) > 0 {
		return adopt(claims)
	}
	if o.Want.ClusterID != "" {
		return stall(v1alpha1.ReasonClaimsMissing, "spec.clusterID asks for cluster %s, and there is no claim of it; restore its claims, or leave spec.clusterID out for a new cluster", o.Want.ClusterID)
	}
	id := Identity{ClusterID: deriveUUID(o.Want.UID, "cluster"), Image: o.Want.Image}
	for n := range o.Want.Voters {
		id.Voters = append(id.Voters, InitialVoter{
			NodeID:      n,
			Claim:       claimName(o.Want.Name, o.Want.UID, n, 0),
			DirectoryID: deriveUUID(o.Want.UID, fmt.Sprintf("directory/%d", n)),
		})
	}
	return do(v1alpha1.ReasonBootstrapping, "writing down who the quorum is", CreateIdentity{id})
}

// adopt rebuilds the record from the claims' annotations. They agree: identityConflict was asked before.
func adopt(claims []Claim) (Step, bool) {
	id := Identity{ClusterID: claims[0].ClusterID, Image: claims[0].Image, Voters: slices.Clone(claims[0].Initial)}
	if id.Sealed = lived(id.Voters, claims); id.Sealed {
		id.Voters = sealed(id.Voters, claims)
	}
	return do(v1alpha1.ReasonBootstrapping, fmt.Sprintf("adopting the claims of cluster %s", id.ClusterID), CreateIdentity{id})
}

// lived: there may be a log. Nothing was ever formatted, and nothing but initial claims exists: then there is none, and
// what is missing may still be made. Otherwise what is missing was lost.
func lived(voters []InitialVoter, claims []Claim) bool {
	return slices.ContainsFunc(claims, func(c Claim) bool {
		return c.FormattedFor != "" || !slices.ContainsFunc(voters, func(v InitialVoter) bool { return v.Claim == c.Name })
	})
}

// sealed are the voters with the UIDs of the claims that are there.
func sealed(voters []InitialVoter, claims []Claim) []InitialVoter {
	voters = slices.Clone(voters)
	for i := range voters {
		for _, c := range claims {
			if c.Name == voters[i].Claim {
				voters[i].ClaimUID = c.UID
			}
		}
	}
	return voters
}

// initialClaims makes all claims, then seals the record. A record whose seal a person has taken off is sealed again
// over what is left: a lost claim must not come back with the identity of the one that has voted.
func initialClaims(o Observation) (Step, bool) {
	var acts []Action
	for _, v := range o.Identity.Voters {
		c := o.claim(v.Claim)
		switch {
		case c == nil && lived(o.Identity.Voters, o.Claims): // lost
		case c == nil:
			acts = append(acts, CreateClaim{v.Claim, v.NodeID, o.Identity.ClusterID, o.Identity.Image, o.Identity.Voters})
		case c.Deleting:
			return wait(v1alpha1.ReasonClaimDeleting, "claim %s is being deleted; waiting until it's gone", c.Name)
		}
	}
	if len(acts) > 0 {
		return do(v1alpha1.ReasonBootstrapping, "making the voters' claims", acts...)
	}
	return do(v1alpha1.ReasonBootstrapping, "sealing the record: all claims are there", SealIdentity{o.Identity.UID, sealed(o.Identity.Voters, o.Claims)})
}

// format uses the right to format of each initial claim that has not used it.
func format(o Observation) (Step, bool) {
	var acts []Action
	var waits []string
	var failed string
	for _, m := range voters(o) {
		fp := o.formatPod(m.id)
		c := m.claim
		due := m.initial != nil && c != nil && c.Name == m.initial.Claim && !c.Deleting && !m.mayRun(o)
		switch {
		case fp != nil && fp.Terminating:
			waits = append(waits, fp.Name)
		case fp != nil && (!due || fp.ClaimUID != c.UID): // has done its work, or its claim is gone
			acts = append(acts, DeleteFormatPod{fp.Name, fp.UID})
		case fp != nil && fp.Phase == corev1.PodSucceeded:
			acts = append(acts, RecordFormatted{c.Name, c.UID}, DeleteFormatPod{fp.Name, fp.UID})
		case fp != nil && fp.Revision != o.Revision.Name && replaceable(o): // the spec was corrected
			acts = append(acts, DeleteFormatPod{fp.Name, fp.UID})
		case fp != nil && fp.Phase == corev1.PodFailed:
			failed = fmt.Sprintf("Pod %s could not format claim %s%s", fp.Name, c.Name, parenthesis(fp.Token, fp.Problem))
			if o.Now.Sub(fp.Finished) >= formatRetry {
				acts = append(acts, DeleteFormatPod{fp.Name, fp.UID})
			}
		case fp != nil:
			waits = append(waits, fp.Name+parenthesis(fp.Token, fp.Problem))
		case due && !replaceable(o):
			waits = append(waits, "revision "+o.Revision.Name)
		case due && !accountExists(o):
			waits = append(waits, "the ServiceAccount")
		case due:
			acts = append(acts, CreateFormatPod{m.id, c.Name, c.UID, o.Revision.Name, o.Identity.ClusterID, o.Identity.Voters})
		}
	}
	switch {
	case failed != "":
		s, ok := stall(v1alpha1.ReasonFormatFailed, "%s; trying again", failed)
		s.Actions, s.RequeueAfter = acts, formatRetry
		return s, ok
	case len(acts) > 0:
		return do(v1alpha1.ReasonBootstrapping, "formatting the voters' claims", acts...)
	case len(waits) > 0 && o.Revision.Invalid != "":
		return invalidTemplate(o)
	case len(waits) > 0:
		return wait(v1alpha1.ReasonBootstrapping, "formatting the voters' claims; waiting for %s", list(waits))
	}
	return Step{}, false
}

// identityConflict: nothing is touched while it's in doubt whose data this is.
func identityConflict(o Observation) (Step, bool) {
	if why := conflictOfIdentity(o); why != "" {
		return stall(v1alpha1.ReasonIdentityConflict, "%s", why)
	}
	return Step{}, false
}

// conflictOfIdentity says why record, claims and spec don't belong together, or "".
func conflictOfIdentity(o Observation) string {
	if o.Unreadable != "" {
		return o.Unreadable + "; put back what it held, or delete it: it is made again from what the claims tell"
	}
	cluster, from := o.Want.ClusterID, "spec.clusterID"
	var planned []InitialVoter
	if o.Identity != nil {
		if cluster != "" && cluster != o.Identity.ClusterID {
			return fmt.Sprintf("spec.clusterID is %s, and the record %s says %s; put the right id back, or create another MetadataQuorum", cluster, IdentityName(o.Want.Name), o.Identity.ClusterID)
		}
		cluster, from, planned = o.Identity.ClusterID, "the record "+IdentityName(o.Want.Name), o.Identity.Voters
	}
	for _, c := range o.Claims {
		if c.Parked || c.Deleting {
			continue
		}
		switch {
		case c.ClusterID == "" || len(c.Initial) == 0:
			return fmt.Sprintf("claim %s carries the label of this quorum, but not the annotations that say whose it is; delete it, or take the label off", c.Name)
		case cluster != "" && c.ClusterID != cluster:
			return fmt.Sprintf("claim %s is of cluster %s, and %s says %s; take the claim's label off, or delete it", c.Name, c.ClusterID, from, cluster)
		case planned != nil && !samePlan(planned, c.Initial):
			return fmt.Sprintf("claim %s was made for another first voter set than %s says; take the claim's label off, or delete it", c.Name, from)
		case c.FormattedFor != "" && c.FormattedFor != c.UID:
			return fmt.Sprintf("claim %s has UID %s and was formatted as %s: restored or cloned, so the quorum can't tell whether its data is the newest; take the claim's label off, or delete it", c.Name, c.UID, c.FormattedFor)
		}
		if o.Identity != nil && o.Identity.Sealed {
			for _, v := range o.Identity.Voters {
				if v.Claim == c.Name && v.ClaimUID != c.UID {
					return fmt.Sprintf("claim %s is not the one that the record %s was sealed with: made or restored by somebody else; take the claim's label off, or delete it", c.Name, IdentityName(o.Want.Name))
				}
			}
		}
		if o.Identity == nil && planned == nil { // the first claim speaks for all
			cluster, from, planned = c.ClusterID, "claim "+c.Name, c.Initial
		}
	}
	return ""
}

// samePlan compares first voter sets but for what the seal adds.
func samePlan(a, b []InitialVoter) bool {
	return slices.EqualFunc(a, b, func(a, b InitialVoter) bool {
		return a.NodeID == b.NodeID && a.Claim == b.Claim && a.DirectoryID == b.DirectoryID
	})
}

// Bootstrapped reports whether the quorum's log exists: a leader has committed something.
func Bootstrapped(o Observation) bool {
	return o.Identity != nil && o.Identity.Sealed && o.View != nil && o.View.Leader >= 0 && o.View.Committed
}

func (o Observation) claim(name string) *Claim {
	for i := range o.Claims {
		if o.Claims[i].Name == name {
			return &o.Claims[i]
		}
	}
	return nil
}

func (o Observation) formatPod(id int32) *FormatPod {
	for i := range o.FormatPods {
		if o.FormatPods[i].NodeID == id {
			return &o.FormatPods[i]
		}
	}
	return nil
}

// parenthesis adds the first word that is known to a name.
func parenthesis(words ...string) string {
	for _, w := range words {
		if w != "" {
			return " (" + w + ")"
		}
	}
	return ""
}

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

// model is a world for the planner to act on: an API server, a kubelet and a quorum, each as simple as the planner's
// questions allow. One tick is one second.
type model struct {
	fail func(format string, args ...any)

	now      time.Time
	want     Want
	revision string
	bad      map[string]bool // revisions whose Pods never run
	uids     int

	identity   *Identity
	claims     map[string]*modelClaim
	pods       map[int32]*modelPod
	formatPods map[int32]*FormatPod
	shared     map[string]bool
	revisions  []string // stored, the newest last
	memory     Memory
	handoff    *Handoff
	handoffs   int // that were accepted

	leader    int32
	epoch     int32
	electedAt time.Time
	end       int64
	cut       map[int32]time.Time // members that can't reach the others, and since when
	silent    bool                // no voter answers the operator

	formatted map[string]types.UID // directory id → the claim it was written to: never two
	gone      map[string]bool      // directory ids whose disk was lost
}

type modelClaim struct {
	Claim
	dir string // on the disk, "" if empty
	end int64
}

type modelPod struct {
	Pod
	caughtUp time.Time
}

func newModel(voters, observers int32, fail func(string, ...any)) *model {
	m := &model{
		fail: fail, now: now, revision: "r1", leader: -1,
		bad: map[string]bool{}, claims: map[string]*modelClaim{}, pods: map[int32]*modelPod{}, formatPods: map[int32]*FormatPod{},
		shared: map[string]bool{}, cut: map[int32]time.Time{}, formatted: map[string]types.UID{}, gone: map[string]bool{},
	}
	m.want = build(int(voters), 0).Want
	m.want.Observers = observers
	m.want.MinReady = 3 * time.Second
	return m
}

func (m *model) uid() types.UID {
	m.uids++
	return types.UID(fmt.Sprintf("uid-%d", m.uids))
}

// observe is what a perfect observer would hand to the planner.
func (m *model) observe() Observation {
	o := Observation{Now: m.now, Want: m.want, Memory: m.memory, Handoff: m.handoff}
	if m.identity != nil {
		id := *m.identity
		id.Voters = slices.Clone(id.Voters)
		o.Identity = &id
	}
	for _, c := range m.claims {
		o.Claims = append(o.Claims, c.Claim)
	}
	slices.SortFunc(o.Claims, func(a, b Claim) int { return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Name, b.Name)) })
	for _, id := range slices.Sorted(maps.Keys(m.pods)) {
		o.Pods = append(o.Pods, m.pods[id].Pod)
	}
	for _, id := range slices.Sorted(maps.Keys(m.formatPods)) {
		o.FormatPods = append(o.FormatPods, *m.formatPods[id])
	}
	for _, s := range []Shared{{Kind: KindBudget, Name: "orders-voters"}, {Kind: KindServiceAccount, Name: "orders-member"}} {
		s.State = SharedAbsent
		if m.shared[s.Name] {
			s.State = SharedCurrent
		}
		o.Shared = append(o.Shared, s)
	}
	stored := slices.Contains(m.revisions, m.revision)
	o.Revision = Revision{Name: m.revision, Stored: stored, Config: stored, Newest: stored && m.revisions[len(m.revisions)-1] == m.revision}
	for _, r := range m.revisions {
		if r != m.revision {
			o.Revisions = append(o.Revisions, OldRevision{r, types.UID(r), types.UID(r)})
		}
	}
	o.View = m.view()
	return o
}

func (m *model) view() *View {
	if m.silent || m.identity == nil || len(m.liveVoters()) == 0 {
		return nil
	}
	if m.isCut(m.leader) { // the operator doesn't reach it either
		return &View{Leader: -1, Epoch: m.epoch, At: m.now, HighWatermark: -1, LogEnd: -1}
	}
	v := &View{Leader: m.leader, Epoch: m.epoch, At: m.now, HighWatermark: m.end, LogEnd: m.end, Committed: m.leader >= 0 && m.now.Sub(m.electedAt) >= time.Second}
	for _, iv := range m.identity.Voters {
		p := Progress{NodeID: iv.NodeID, DirectoryID: iv.DirectoryID, LogEnd: -1}
		if pod := m.pods[iv.NodeID]; pod != nil && m.isVoter(iv.NodeID) && m.leader >= 0 {
			p = m.progress(pod, iv.DirectoryID)
			if !m.isCut(iv.NodeID) && pod.Running {
				v.ConfirmedBy++
			}
		}
		v.Voters = append(v.Voters, p)
	}
	for _, id := range slices.Sorted(maps.Keys(m.pods)) {
		if pod := m.pods[id]; m.leader >= 0 && pod.Running && !m.isVoter(id) {
			v.Observers = append(v.Observers, m.progress(pod, m.claims[pod.Claim].dir))
		}
	}
	return v
}

func (m *model) progress(pod *modelPod, dir string) Progress {
	p := Progress{NodeID: pod.NodeID, DirectoryID: dir, LogEnd: m.claims[pod.Claim].end}
	if !pod.caughtUp.IsZero() {
		p.CaughtUpAge = new(m.now.Sub(pod.caughtUp))
	}
	return p
}

// isVoter: its disk holds the directory id that the voter set has for it.
func (m *model) isVoter(id int32) bool {
	pod := m.pods[id]
	if pod == nil || m.claims[pod.Claim] == nil {
		return false
	}
	return slices.ContainsFunc(m.identity.Voters, func(v InitialVoter) bool {
		return v.NodeID == id && v.DirectoryID == m.claims[pod.Claim].dir
	})
}

func (m *model) liveVoters() []int32 {
	var ids []int32
	for _, v := range m.identity.Voters {
		if pod := m.pods[v.NodeID]; pod != nil && pod.Running && !pod.Terminating && m.isVoter(v.NodeID) {
			ids = append(ids, v.NodeID)
		}
	}
	return ids
}

// good are the voters that could commit now, as far as anybody can know: a member that was cut off within the fetch
// timeout still counts.
func (m *model) good() []int32 {
	return slices.DeleteFunc(m.liveVoters(), func(id int32) bool {
		since, cut := m.cut[id]
		return cut && m.now.Sub(since) > m.want.FetchTimeout || m.claims[m.pods[id].Claim].end+int64(m.want.FetchTimeout/time.Second) < m.end
	})
}

func (m *model) isCut(id int32) bool { _, cut := m.cut[id]; return cut }

func (m *model) majority() int { return len(m.identity.Voters)/2 + 1 }

// tick lets a second pass.
func (m *model) tick() {
	m.now = m.now.Add(time.Second)
	m.kubelet()
	m.elect()
	m.replicate()
}

func (m *model) kubelet() {
	for _, id := range slices.Sorted(maps.Keys(m.pods)) {
		p := m.pods[id]
		c := m.claims[p.Claim]
		switch {
		case p.Terminating && m.now.Sub(p.TerminatingSince) >= 2*time.Second:
			delete(m.pods, id)
		case p.Terminating:
			p.Running, p.Ready = false, false
		case p.Phase == corev1.PodFailed:
		case m.bad[p.Revision]:
			p.Problem = "ImagePullBackOff"
		case !p.Running && m.now.Sub(p.Created) >= 2*time.Second:
			p.Phase, p.Running, p.Started, p.Problem, p.caughtUp = corev1.PodRunning, true, m.now, "", time.Time{}
			if c.dir == "" { // as `quorum run` on an empty disk
				c.dir = "own-" + string(m.uid())
			}
		}
	}
	for name, c := range m.claims {
		used := slices.ContainsFunc(slices.Collect(maps.Values(m.pods)), func(p *modelPod) bool { return p.Claim == name })
		if c.Deleting && !used {
			m.gone[c.dir] = true
			delete(m.claims, name)
		}
	}
	for id, p := range m.formatPods {
		switch c := m.claims[p.Claim]; {
		case p.Terminating || c == nil:
			delete(m.formatPods, id)
		case p.Phase == corev1.PodPending && !m.bad[p.Revision]:
			m.formatDisk(id, p, c)
		}
	}
}

// formatDisk is `quorum format`, and the oracle of amnesia: a directory id is written to one disk in its life.
func (m *model) formatDisk(id int32, p *FormatPod, c *modelClaim) {
	i := slices.IndexFunc(m.identity.Voters, func(v InitialVoter) bool { return v.NodeID == id })
	planned := m.identity.Voters[i].DirectoryID
	if c.dir != "" && c.dir != planned {
		m.fail("format of claim %s: it holds directory %s, want none or %s", c.Name, c.dir, planned)
	}
	if other, ok := m.formatted[planned]; ok && other != c.UID {
		m.fail("amnesia: directory %s was written to claim UID %s, and now to %s", planned, other, c.UID)
	}
	if m.gone[planned] {
		m.fail("amnesia: directory %s was lost, and is written again", planned)
	}
	m.formatted[planned] = c.UID
	c.dir, p.Phase = planned, corev1.PodSucceeded
}

func (m *model) elect() {
	if m.identity == nil {
		return
	}
	reachable := slices.DeleteFunc(m.liveVoters(), func(id int32) bool { return m.isCut(id) })
	if m.leader >= 0 && (!slices.Contains(reachable, m.leader) || len(reachable) < m.majority()) {
		m.leader = -1
		return
	}
	if m.leader < 0 && len(reachable) >= m.majority() {
		// Who holds most wins; of equals the lowest id.
		m.lead(slices.MaxFunc(reachable, func(a, b int32) int {
			return cmp.Or(cmp.Compare(m.claims[m.pods[a].Claim].end, m.claims[m.pods[b].Claim].end), cmp.Compare(b, a))
		}))
	}
}

func (m *model) lead(id int32) {
	m.leader, m.electedAt = id, m.now
	m.epoch++
	for _, p := range m.pods { // a new leader knows of nobody's progress
		p.caughtUp = time.Time{}
	}
}

func (m *model) replicate() {
	for id, p := range m.pods {
		follows := p.Running && !p.Terminating && m.leader >= 0 && !m.isCut(id)
		if ready := follows && m.now.Sub(p.Started) >= time.Second; ready != p.Ready {
			p.Ready, p.ReadySince = ready, m.now
		}
		if follows && m.now.After(p.Started) {
			p.caughtUp = m.now
			m.claims[p.Claim].end = m.end
		}
	}
	if good := m.goodOrNone(); m.leader >= 0 && m.identity != nil && len(good) >= m.majority() {
		m.end++
		for _, id := range slices.DeleteFunc(good, m.isCut) {
			m.claims[m.pods[id].Claim].end = m.end
		}
	}
}

// apply is act, with the API server's and the quorum's fences.
func (m *model) apply(a Action) {
	switch a := a.(type) {
	case CreateIdentity:
		if m.identity == nil {
			id := a.Identity
			id.UID, id.Voters = m.uid(), slices.Clone(id.Voters)
			m.identity = &id
		}
	case SealIdentity:
		m.identity.Sealed, m.identity.Voters = true, slices.Clone(a.Voters)
	case CreateShared:
		m.shared[a.Name] = true
	case CreateRevision:
		m.revisions = append(m.revisions, a.Name)
	case RaiseRevision:
		m.revisions = append(slices.DeleteFunc(m.revisions, func(r string) bool { return r == a.Name }), a.Name)
	case DeleteRevision:
		m.revisions = slices.DeleteFunc(m.revisions, func(r string) bool { return r == a.Name })
	case CreateClaim:
		if m.claims[a.Name] == nil {
			m.claims[a.Name] = &modelClaim{Claim: Claim{Name: a.Name, UID: m.uid(), NodeID: a.NodeID, ClusterID: a.ClusterID, Image: a.Image, Initial: a.Initial}}
		}
	case ParkClaim:
		m.claims[a.Name].Parked = true
	case DeleteClaim:
		m.claims[a.Name].Deleting = true
	case CreateFormatPod:
		if m.formatPods[a.NodeID] == nil {
			m.formatPods[a.NodeID] = &FormatPod{Name: FormatPodName("orders", a.NodeID), UID: m.uid(), NodeID: a.NodeID, Claim: a.Claim, ClaimUID: a.ClaimUID, Revision: a.Revision, Phase: corev1.PodPending}
		}
	case RecordFormatted:
		if c := m.claims[a.Claim]; c != nil && c.UID == a.UID {
			c.FormattedFor = a.UID
		}
	case DeleteFormatPod:
		for _, p := range m.formatPods {
			if p.UID == a.UID {
				p.Terminating = true
			}
		}
	case CreateMemberPod:
		if m.pods[a.NodeID] != nil {
			return // AlreadyExists
		}
		m.pods[a.NodeID] = &modelPod{Pod: Pod{
			Name: PodName("orders", a.NodeID), UID: m.uid(), NodeID: a.NodeID, Claim: a.Claim, Revision: a.Revision, RestartedAt: a.RestartedAt,
			Created: m.now, Phase: corev1.PodPending, Grace: time.Minute, Node: "n",
		}}
	case CheckPod:
	case EvictPod:
		m.remove(a.NodeID, a.UID)
	case DeletePod:
		m.remove(a.NodeID, a.UID)
	case HandOff:
		m.handOff(a)
	default:
		m.fail("model doesn't know %T", a)
	}
}

// remove begins a Pod's end, and is the oracle of A1 and A2.
func (m *model) remove(id int32, uid types.UID) {
	p := m.pods[id]
	if p == nil || p.UID != uid {
		return
	}
	if id < v1alpha1.FirstObserverID && len(m.identity.Voters) > 1 {
		for other, q := range m.pods {
			if other < v1alpha1.FirstObserverID && q.Terminating {
				m.fail("A2: voter %d is removed while %d is shutting down", id, other)
			}
		}
		others := slices.DeleteFunc(m.good(), func(g int32) bool { return g == id })
		if p.Running && len(others) < m.majority() {
			m.fail("A1: voter %d is removed, only %v of the others are good\n%s\n%+v", id, others, m, m.view())
		}
	}
	if p.Running && id == m.leader && len(m.identity.Voters) > 1 {
		m.fail("A3: the leader %d is removed without a handoff", id)
	}
	m.kill(id)
}

// kill begins a Pod's end, whoever asked for it.
func (m *model) kill(id int32) {
	if p := m.pods[id]; p != nil && !p.Terminating {
		p.Terminating, p.TerminatingSince = true, m.now
	}
}

func (m *model) handOff(a HandOff) {
	if a.Leader != m.leader || a.Epoch != m.epoch {
		return // refused
	}
	m.handoffs++
	target := m.pods[a.Target]
	ok := slices.Contains(m.good(), a.Target)
	m.handoff = &Handoff{ID: string(m.uid()), From: a.Leader, To: a.Target, FromEpoch: a.Epoch, Succeeded: ok, Ended: m.now}
	if !ok {
		m.handoff.Reason = "the target is behind"
		return
	}
	if target.Revision != m.revision {
		m.fail("handoff to %d, which is outdated", a.Target)
	}
	m.lead(a.Target)
}

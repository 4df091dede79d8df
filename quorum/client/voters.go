package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kraft-operator/kraft-operator/quorum/raft"
)

// Voter names a member that is to be added to the voters or removed from them. What is left out is looked up.
type Voter struct {
	NodeID      int32
	DirectoryID raft.UUID  // zero: as the quorum knows the member
	Endpoints   []Endpoint // to add: how others reach it, the listener for peers at least; none: as the quorum knows it
	ClusterID   string     // of its directory; empty: not checked
}

// Changed is the outcome of AddVoter and RemoveVoter.
type Changed struct {
	NodeID      int32     `json:"nodeId"`
	DirectoryID string    `json:"directoryId"`
	Changed     bool      `json:"changed"`              // false: it was so before
	AnswerLost  bool      `json:"answerLost,omitempty"` // it was found changed, after an attempt that had no answer
	Voters      []Replica `json:"voters"`               // afterwards; empty if nobody could be asked any more
}

// ErrUnsettled says that the context ended before it was known whether a change of the voters is made. The next look at
// the quorum tells.
var ErrUnsettled = errors.New("it may have been made all the same")

// AddVoter makes a voter of an observer and waits until that is committed. While the member is not caught up, or another
// change is under way, it tries again until the context ends. tell, if not nil, hears what it waits for.
func (c *Client) AddVoter(ctx context.Context, bootstrap []string, voter Voter, tell func(string)) (*Changed, error) {
	w := change{c: c, bootstrap: bootstrap, name: fmt.Sprintf("add voter %d", voter.NodeID), voter: voter, next: addition}
	return w.make(ctx, tell)
}

// RemoveVoter makes an observer of a voter, which may be the leader, and waits until that is committed. Unless forced it
// refuses if those voters that stay and are up to date are not a majority of all that stay.
func (c *Client) RemoveVoter(ctx context.Context, bootstrap []string, voter Voter, force bool, tell func(string)) (*Changed, error) {
	w := change{c: c, bootstrap: bootstrap, name: fmt.Sprintf("remove voter %d", voter.NodeID), voter: voter, next: removal}
	if !force {
		w.next = func(w *change, v *view) (kmsg.Request, error) {
			request, err := removal(w, v)
			if request != nil {
				err = v.risk(w.voter.NodeID)
			}
			return request, err
		}
	}
	return w.make(ctx, tell)
}

// change is a change of the voters on its way.
type change struct {
	c         *Client
	bootstrap []string
	name      string
	voter     Voter
	// next says what has to be asked of the leader of a view; nothing if its voters are as wanted. It fills in what
	// voter left out.
	next func(*change, *view) (kmsg.Request, error)

	askedIn  int32 // epoch of the leader that was asked last; 0: none was
	answered bool  // and it has answered
	doubt    bool  // what was asked may have been done, or may yet be
	appended view  // the first of those in a row that have the voters as wanted
}

// notYet is why a change is not made so far, which may pass by itself. All other errors are final.
//
//nolint:errname // a reason to wait
type notYet struct{ error }

func (n notYet) Unwrap() error { return n.error }

const (
	changeAgainAfter = 250 * time.Millisecond
	// changeTimeout bounds one request: the leader probes the new voter and waits for the commit, with two seconds for
	// each unless it is configured otherwise.
	changeTimeout = 10 * time.Second
)

func (w *change) make(ctx context.Context, tell func(string)) (*Changed, error) {
	var told string
	var why error  // the last request was not granted
	var last error // what was waited for last
	for {
		v, request, err := w.look(ctx)
		switch {
		case err == nil && request == nil:
			return w.made(v), nil
		case err != nil && over(ctx) && (last != nil || w.askedIn > 0):
			return nil, w.failed(ctx, cmp.Or(last, err)) // the end came in the middle of a question, which says nothing
		}
		if err == nil && why == nil {
			if why = w.ask(ctx, v, request); why == nil {
				return w.confirmed(ctx), nil
			}
			if _, wait := errors.AsType[notYet](why); wait {
				continue // with a look at what became of it
			}
			err = why
		}
		if err == nil {
			err = why
		}
		wait, ok := errors.AsType[notYet](err)
		if !ok {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		last = wait
		if tell != nil && told != wait.Error() {
			told = wait.Error()
			tell(told)
		}
		if !pause(ctx, changeAgainAfter) {
			return nil, w.failed(ctx, wait)
		}
		why = nil
	}
}

// over reports whether the time of a context is up, which a dialer with the same deadline may see a moment earlier.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= 0
}

// look says what is left to do. No request and no error: the voters are as wanted, for good.
func (w *change) look(ctx context.Context) (*view, kmsg.Request, error) {
	v, err := w.c.view(ctx, w.bootstrap)
	if err != nil && w.askedIn > 0 {
		return nil, nil, notYet{err}
	}
	if err != nil {
		return nil, nil, err
	}
	if w.voter.ClusterID != "" && w.voter.ClusterID != v.ClusterID {
		return nil, nil, fmt.Errorf("node %d is of cluster %s: these are members of cluster %s", w.voter.NodeID, w.voter.ClusterID, v.ClusterID)
	}
	if len(v.Voters) > 0 && v.Voters[0].DirectoryID == (raft.UUID{}).String() {
		return nil, nil, fmt.Errorf("the quorum has static voters (kraft.version 0): raise its version first: kafka-features --bootstrap-controller %s upgrade --feature kraft.version=1", v.leader)
	}
	request, err := w.next(w, v)
	if err == nil && request == nil {
		// A set of voters is in force, and shown, once it is appended. To stay it must be committed.
		first := &w.appended
		if first.Quorum == nil || first.LeaderEpoch != v.LeaderEpoch {
			*first = *v
		}
		if leader, ok := first.Leader(); !ok || v.HighWatermark < leader.LogEndOffset {
			err = notYet{errors.New("the change is not committed yet")}
		}
		return v, nil, err
	}
	w.appended = view{}
	if v.HighWatermark >= 0 && (v.LeaderEpoch > w.askedIn || v.LeaderEpoch == w.askedIn && w.answered) {
		// Had it been appended, this leader would show it or will undo it. One that has committed nothing so far may lose
		// to a log that has it.
		w.doubt = false
	}
	return v, request, err
}

// ask sends the request to the leader and reports why it is not granted.
func (w *change) ask(ctx context.Context, v *view, request kmsg.Request) error {
	var code int16
	var message *string
	name := kmsg.NameForKey(request.Key())
	err := w.c.within(ctx, changeTimeout, v.leader, func(k *conn) (err error) {
		if _, ok := k.versions.Of(request.Key()); !ok {
			code, message = int16(raft.UnsupportedVersion), new("it does not serve "+name)
			return nil
		}
		w.askedIn, w.answered, w.doubt = v.LeaderEpoch, false, true
		switch request := request.(type) {
		case *kmsg.AddRaftVoterRequest:
			resp := kmsg.NewPtrAddRaftVoterResponse()
			err = k.request(request, 0, resp)
			code, message = resp.ErrorCode, resp.ErrorMessage
		case *kmsg.RemoveRaftVoterRequest:
			resp := kmsg.NewPtrRemoveRaftVoterResponse()
			err = k.request(request, 0, resp)
			code, message = resp.ErrorCode, resp.ErrorMessage
		}
		w.answered = err == nil
		return err
	})
	if err == nil {
		err = check(code, message)
	}
	refusal, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return notYet{err}
	}
	if slices.Contains(passing, refusal.Code) {
		return notYet{fmt.Errorf("node %d answers %w", v.LeaderID, refusal)}
	}
	if refusal.Message == "" { // Kafka says no more than the code in some cases
		switch _, adds := request.(*kmsg.AddRaftVoterRequest); {
		case refusal.Code == raft.UnsupportedVersion:
			refusal.Message = "want a quorum with kraft.version 1"
		case refusal.Code == raft.InvalidRequest && adds:
			refusal.Message = "want a member that supports the quorum's kraft.version"
		}
	}
	return fmt.Errorf("node %d answers %w", v.LeaderID, refusal)
}

// passing are refusals after which it may be tried again. The last two tell that the voters are others than a moment ago.
var passing = []raft.ErrorCode{raft.RequestTimedOut, raft.NotLeaderOrFollower, raft.NotController, raft.DuplicateVoter, raft.VoterNotFound}

// confirmed is the outcome after the leader's word that the change is committed.
func (w *change) confirmed(ctx context.Context) *Changed {
	v, err := w.c.view(ctx, w.bootstrap)
	if err != nil {
		v = &view{Quorum: &Quorum{}} // a leader that removed itself may have no successor yet
	}
	return w.made(v)
}

func (w *change) made(v *view) *Changed {
	asked := w.askedIn > 0
	return &Changed{NodeID: w.voter.NodeID, DirectoryID: w.voter.DirectoryID.String(), Changed: asked, AnswerLost: asked && !w.answered, Voters: v.Voters}
}

// failed is the error when the context has ended.
func (w *change) failed(ctx context.Context, why error) error {
	end := "time is up"
	if errors.Is(ctx.Err(), context.Canceled) {
		end = "interrupted"
	}
	if w.doubt || w.appended.Quorum != nil {
		return fmt.Errorf("%s: %s: %w; %w: see quorum describe status", w.name, end, why, ErrUnsettled)
	}
	return fmt.Errorf("%s: %s: %w; the voters are as they were", w.name, end, why)
}

// addition is what to ask so that the voters have one more.
func addition(w *change, v *view) (kmsg.Request, error) {
	want := &w.voter
	observer, err := v.observer(want.NodeID, want.DirectoryID)
	if entry, votes := replica(v.Voters, want.NodeID); votes {
		directory := want.DirectoryID.String()
		if want.DirectoryID.IsZero() && observer != nil {
			directory = observer.DirectoryID
		}
		if directory != entry.DirectoryID && (observer != nil || !want.DirectoryID.IsZero()) {
			return nil, fmt.Errorf("the voters have node %d with another directory, %s: remove the old entry first: quorum voter remove --node-id %d --directory-id %s",
				want.NodeID, entry.DirectoryID, want.NodeID, entry.DirectoryID)
		}
		want.DirectoryID, err = raft.ParseUUID(entry.DirectoryID)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if want.DirectoryID, err = raft.ParseUUID(observer.DirectoryID); err != nil {
		return nil, err
	}
	if len(want.Endpoints) == 0 {
		e, err := v.endpoint(want.NodeID)
		if err != nil {
			return nil, err
		}
		want.Endpoints = []Endpoint{e}
	}
	request := kmsg.NewPtrAddRaftVoterRequest()
	request.ClusterID, request.TimeoutMillis = &v.ClusterID, int32(changeTimeout.Milliseconds())
	request.VoterID, request.VoterDirectoryID = want.NodeID, want.DirectoryID
	for _, e := range want.Endpoints {
		request.Listeners = append(request.Listeners, kmsg.AddRaftVoterRequestListener{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	return request, nil
}

// removal is what to ask so that the voters have one less.
func removal(w *change, v *view) (kmsg.Request, error) {
	want := &w.voter
	entry, votes := replica(v.Voters, want.NodeID)
	other := votes && !want.DirectoryID.IsZero() && entry.DirectoryID != want.DirectoryID.String()
	switch {
	case (!votes || other) && w.askedIn > 0:
		return nil, nil
	case !votes:
		is := ""
		if _, observes := replica(v.Observers, want.NodeID); observes {
			is = fmt.Sprintf("node %d is an observer: ", want.NodeID)
		}
		return nil, fmt.Errorf("no such voter: %swant one of %s", is, names(v.Voters))
	case other:
		return nil, fmt.Errorf("no such voter: node %d has directory %s, not %s", want.NodeID, entry.DirectoryID, want.DirectoryID)
	case len(v.Voters) == 1:
		return nil, errors.New("it is the only voter: add another first")
	}
	var err error
	if want.DirectoryID, err = raft.ParseUUID(entry.DirectoryID); err != nil {
		return nil, err
	}
	request := kmsg.NewPtrRemoveRaftVoterRequest()
	request.ClusterID, request.VoterID, request.VoterDirectoryID = &v.ClusterID, want.NodeID, want.DirectoryID
	return request, nil
}

// Members fetch twice a second, or more often, if they are configured as most are.
const (
	observesWithin = 2 * time.Second // a newcomer that was silent for longer is waited for
	silentAfter    = 5 * time.Second // a voter that was not up to date for longer counts as gone
)

// observer finds the observer with that id that fetches now. Members that changed their directory are shown with the old
// one, too, until the leader forgets it.
func (v *view) observer(id int32, directory raft.UUID) (*Replica, error) {
	var found []Replica
	for _, r := range v.Observers {
		if r.NodeID == id && (directory.IsZero() || r.DirectoryID == directory.String()) && v.age(r.LastFetchTimestamp) < observesWithin {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0 && directory.IsZero():
		return nil, notYet{fmt.Errorf("node %d does not fetch from node %d, the leader: want it running as an observer", id, v.LeaderID)}
	case len(found) == 0:
		return nil, notYet{fmt.Errorf("node %d does not fetch from node %d, the leader, with directory %s: want it running as an observer", id, v.LeaderID, directory)}
	case len(found) > 1:
		return nil, notYet{fmt.Errorf("node %d was just seen with directories %s and %s: want --directory-id, or only one of them running", id, found[0].DirectoryID, found[1].DirectoryID)}
	case found[0].DirectoryID == (raft.UUID{}).String():
		return nil, fmt.Errorf("node %d has no directory id: want one formatted for kraft.version 1", id)
	}
	return &found[0], nil
}

// endpoint is how a member that is no voter is reached by others, as far as the quorum tells: its listener for peers. It
// publishes the others itself once it is a voter.
func (v *view) endpoint(id int32) (Endpoint, error) {
	host, port, err := net.SplitHostPort(v.nodes[id])
	if err != nil {
		return Endpoint{}, notYet{fmt.Errorf("the quorum does not tell how node %d is reached: want --endpoint CONTROLLER://HOST:PORT", id)}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Endpoint{}, fmt.Errorf("node %d is reached at port %s: want --endpoint CONTROLLER://HOST:PORT", id, port)
	}
	name := "CONTROLLER"
	if leader, ok := v.Leader(); ok {
		for _, e := range leader.Endpoints {
			if e.Address() == v.leader {
				name = e.Name // controller.listener.names
			}
		}
	}
	return Endpoint{Name: name, Host: host, Port: uint16(n)}, nil
}

// risk is why the removal of a voter would cost the quorum: those that stay and are up to date are not a majority.
func (v *view) risk(id int32) error {
	var stay, able []Replica
	for _, r := range v.Voters {
		if r.NodeID == id {
			continue
		}
		stay = append(stay, r)
		if r.NodeID == v.LeaderID || v.age(r.LastCaughtUpTimestamp) < silentAfter {
			able = append(able, r)
		}
	}
	if majority := len(stay)/2 + 1; len(able) < majority {
		return fmt.Errorf("of the voters that would stay, %s, only %d are up to date: want at least %d, or --force", names(stay), len(able), majority)
	}
	return nil
}

// age of an instant on the leader's clock, which shows in the leader's own line.
func (v *view) age(millis int64) time.Duration {
	leader, ok := v.Leader()
	if !ok || millis < 0 {
		return 1<<63 - 1
	}
	return time.Duration(leader.LastFetchTimestamp-millis) * time.Millisecond
}

func replica(all []Replica, id int32) (Replica, bool) {
	for _, r := range all {
		if r.NodeID == id {
			return r, true
		}
	}
	return Replica{}, false
}

func names(all []Replica) string {
	ids := make([]string, len(all))
	for i, r := range all {
		ids[i] = strconv.Itoa(int(r.NodeID))
	}
	return strings.Join(ids, ", ")
}

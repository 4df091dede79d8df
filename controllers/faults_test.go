package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// fault is what happens to one call of the operator to the API server.
type fault string

const (
	callFails     fault = "fails"        // and has no effect
	callLost      fault = "answer lost"  // it has its effect, and the operator is told it failed
	callConflicts fault = "conflicts"    // somebody else wrote first
	callLate      fault = "answers late" // a whole pass later
)

const lateBy = 100 * time.Millisecond

// faultyAPI lets a fault happen to the calls that are picked, reads and writes
// alike. A call is known by its number, and by what it is: verb, kind, name.
type faultyAPI struct {
	kind fault
	pick func(n int, first bool) bool

	mu    sync.Mutex
	off   bool
	calls int
	hit   int
	seen  map[string]bool
}

func (f *faultyAPI) call(verb string, obj any, name string, do func() error) error {
	f.mu.Lock()
	f.calls++
	what := fmt.Sprintf("%s %T %s", verb, obj, name)
	picked := !f.off && f.pick(f.calls, !f.seen[what])
	if f.seen == nil {
		f.seen = map[string]bool{}
	}
	f.seen[what] = true
	if picked {
		f.hit++
	}
	f.mu.Unlock()
	if !picked {
		return do()
	}
	failure := apierrors.NewInternalError(fmt.Errorf("%s: a planted fault", what))
	switch f.kind {
	case callFails:
		return failure
	case callLost:
		if err := do(); err != nil {
			return err
		}
		return failure
	case callConflicts:
		return apierrors.NewConflict(schema.GroupResource{Resource: "things"}, name, errors.New("a planted conflict"))
	default:
		err := do()
		time.Sleep(lateBy) // the fault itself
		return err
	}
}

// end lets no more faults happen and tells how many did, of how many calls.
func (f *faultyAPI) end() (hit, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
	return f.hit, f.calls
}

func (f *faultyAPI) wrap(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return f.call("get", obj, key.Name, func() error { return w.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return f.call("list", list, "", func() error { return w.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return f.call("create", obj, obj.GetName(), func() error { return w.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return f.call("delete", obj, obj.GetName(), func() error { return w.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return f.call("patch", obj, obj.GetName(), func() error { return w.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return f.call("apply", obj, "", func() error { return w.Apply(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			return f.call("create "+sub, obj, obj.GetName(), func() error { return w.SubResource(sub).Create(ctx, obj, body, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return f.call("update "+sub, obj, obj.GetName(), func() error { return w.SubResource(sub).Update(ctx, obj, opts...) })
		},
	})
}

// reader puts uncached reads behind the same counter.
func (f *faultyAPI) reader(inner client.Reader) client.Reader { return &faultyReader{f, inner} }

type faultyReader struct {
	f     *faultyAPI
	inner client.Reader
}

func (r *faultyReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return r.f.call("get", obj, key.Name, func() error { return r.inner.Get(ctx, key, obj, opts...) })
}

func (r *faultyReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.f.call("list", list, "", func() error { return r.inner.List(ctx, list, opts...) })
}

// startFaultyOperator runs an operator whose calls meet faults.
func startFaultyOperator(ctx context.Context, ns string, f *faultyAPI) *operator {
	GinkgoHelper()
	return startOperator(ctx, ns, withFaults(f.wrap), withChange(func(r *controllers.MetadataQuorumReconciler) {
		r.APIReader = f.reader(r.APIReader)
	}))
}

// faultStep is how far apart faults are that are picked by number: further than
// a pass has calls, so that passes get through in between.
const faultStep = 41

// faultRuns is how many of the faultStep runs that together hit the call of
// every number are made; KRAFT_FAULT_RUNS=41 makes all.
func faultRuns() int {
	if n, err := strconv.Atoi(os.Getenv("KRAFT_FAULT_RUNS")); err == nil {
		return min(n, faultStep)
	}
	return 1
}

var _ = Describe("A fault at every API call of a bootstrap and a roll", Label("faults"), func() {
	story := func(ctx context.Context, f *faultyAPI) {
		GinkgoHelper()
		ns := newNamespace(ctx)
		op := startFaultyOperator(ctx, ns, f)
		mq := testQuorum(ns, "q").observers(1).create(ctx)
		before := expectCurrent(ctx, mq)
		Expect(before.Status.Summary).To(Equal(&v1alpha1.SummaryStatus{Voters: "3/3", Observers: "1/1", Updated: "4/4"}))
		claims := keysOf(claimsOf(ctx, mq))
		Expect(claims).To(HaveLen(4))

		change(ctx, mq, setImage(imageB))
		after := expectRolled(ctx, mq, imageB)
		Expect(after.Status.Summary).To(Equal(before.Status.Summary))
		Expect(after.Status.ClusterID).To(Equal(before.Status.ClusterID))
		Expect(keysOf(claimsOf(ctx, mq))).To(ConsistOf(claims))
		expectOneElection(before, after)

		hit, calls := f.end()
		Expect(hit).To(BeNumerically(">", 0))
		AddReportEntry("faults", fmt.Sprintf("%d of %d calls", hit, calls))
		expectSteadyState(ctx, op, mq)
	}
	for _, kind := range []fault{callFails, callLost, callConflicts, callLate} {
		It(fmt.Sprintf("leads to the same end if each distinct call %s the first time", kind), func(ctx SpecContext) {
			story(ctx, &faultyAPI{kind: kind, pick: func(_ int, first bool) bool { return first }})
		}, SpecTimeout(2*time.Minute))
		for run := range faultRuns() {
			offset := run * faultStep / faultRuns()
			It(fmt.Sprintf("leads to the same end if every %dth call %s, from %d on", faultStep, kind, offset+1), func(ctx SpecContext) {
				story(ctx, &faultyAPI{kind: kind, pick: func(n int, _ bool) bool { return n%faultStep == offset }})
			}, SpecTimeout(2*time.Minute))
		}
	}
})

package resources

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
	"github.com/kraft-operator/kraft-operator/controllers/plan"
	"github.com/kraft-operator/kraft-operator/quorum/config"
)

// orders is a custom resource as the API server hands it out.
func orders(spec string) *v1alpha1.MetadataQuorum {
	mq := &v1alpha1.MetadataQuorum{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "7c9e6679-7425-40de-944b-e07fc1f90ae7"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &mq.Spec); err != nil {
		panic(err)
	}
	return mq
}

func identity() plan.Identity {
	id := plan.Identity{ClusterID: "5L6g3nShT-eMCtK--X86sw", Image: "registry.example.com/quorum:1", Sealed: true}
	for n := range int32(3) {
		id.Voters = append(id.Voters, plan.InitialVoter{NodeID: n, Claim: fmt.Sprintf("orders-%d-abcd0123", n), DirectoryID: fmt.Sprintf("AAAAAAAAAAAAAAAAAAAA%dA", n), ClaimUID: types.UID(fmt.Sprintf("uid-%d", n))})
	}
	return id
}

func render(t *testing.T, mq *v1alpha1.MetadataQuorum) *Stored {
	t.Helper()
	s, err := Render(mq, identity().ClusterID, identity().Image)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// objects is everything that the operator makes for a quorum, in the order of a bootstrap.
func objects(t *testing.T, mq *v1alpha1.MetadataQuorum) []Object {
	t.Helper()
	id := identity()
	s := render(t, mq)
	rev := RevisionName(mq, s.Image)
	stored, err := ReadRevision(Revision(mq, s, 1)) // Pods are made from what is stored
	if err != nil {
		t.Fatal(err)
	}
	objs := []Object{Identity(mq, id)}
	objs = append(objs, Shared(mq, len(id.Voters))...)
	objs = append(objs, Config(mq, rev, stored))
	objs = append(objs,
		Claim(mq, plan.CreateClaim{Name: id.Voters[0].Claim, NodeID: 0, ClusterID: id.ClusterID, Image: id.Image, Initial: id.Voters}),
		Claim(mq, plan.CreateClaim{Name: "orders-1000-abcd0123", NodeID: 1000, ClusterID: id.ClusterID, Image: id.Image, Initial: id.Voters}),
		FormatPod(mq, stored, plan.CreateFormatPod{NodeID: 0, Claim: id.Voters[0].Claim, ClaimUID: "uid-0", Revision: rev, Cluster: id.ClusterID, Initial: id.Voters}),
		MemberPod(mq, stored, plan.CreateMemberPod{NodeID: 0, Claim: id.Voters[0].Claim, Revision: rev}),
		MemberPod(mq, stored, plan.CreateMemberPod{NodeID: 1000, Claim: "orders-1000-abcd0123", Revision: rev, RestartedAt: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)}),
	)
	return objs
}

// TestGolden: custom resource in, objects out. REWRITE=1 go test writes the objects anew.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var spec, want []byte
			for _, f := range archive.Files {
				switch f.Name {
				case "spec.yaml":
					spec = f.Data
				case "objects.yaml":
					want = f.Data
				}
			}
			mq := orders(string(spec))
			got := marshal(t, objects(t, mq))
			if again := marshal(t, objects(t, mq)); !bytes.Equal(got, again) {
				t.Error("the same resource gives other objects the second time")
			}
			if os.Getenv("REWRITE") != "" {
				archive.Files = []txtar.File{{Name: "spec.yaml", Data: spec}, {Name: "objects.yaml", Data: got}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("objects differ (-want +got):\n%s", diff)
			}
		})
	}
}

func marshal(t *testing.T, objs []Object) []byte {
	t.Helper()
	var b bytes.Buffer
	for i, o := range objs {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		delete(m, "status") // the API server's
		data, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(data)
	}
	return b.Bytes()
}

// TestPropertiesAreWhatTheServerReads parses the rendered file as a member does, in its Pod's environment.
func TestPropertiesAreWhatTheServerReads(t *testing.T) {
	mq := orders(`{raft: {fetchTimeout: 1500ms}, log: {segmentBytes: 64Mi}}`)
	s := render(t, mq)
	for _, id := range []int32{0, 1000} {
		pod := MemberPod(mq, s, plan.CreateMemberPod{NodeID: id, Claim: "c"})
		env := map[string]string{}
		for _, v := range pod.Spec.Containers[0].Env {
			env[v.Name] = v.Value
		}
		c, err := config.Parse("quorum.properties", []byte(s.Properties), config.Host{LookupEnv: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
		if err != nil {
			t.Fatalf("member %d: %v", id, err)
		}
		if int32(c.NodeID) != id || c.ObserverOnly != (id >= 1000) || c.ClusterID != identity().ClusterID {
			t.Errorf("member %d: node id %d, observer only %t, cluster %s", id, c.NodeID, c.ObserverOnly, c.ClusterID)
		}
		if c.FetchTimeout != 1500*time.Millisecond || c.SegmentBytes != 64<<20 || c.Revision != RevisionName(mq, s.Image) {
			t.Errorf("member %d: %+v", id, c)
		}
		if got, want := c.Advertised[0].Host, Host(mq, id); got != want {
			t.Errorf("member %d advertises %s, want %s", id, got, want)
		}
	}
}

// TestRL08RevisionFollowsTheUsersInputs: what reaches a Pod makes another revision, all else makes none.
func TestRL08RevisionFollowsTheUsersInputs(t *testing.T) {
	base := RevisionName(orders(`{}`), "image")
	for spec, same := range map[string]bool{
		`{raft: {}}`:        true,
		`{podTemplate: {}}`: true,
		`{podTemplate: {metadata: {labels: {}}}}`:                              true,
		`{observers: {replicas: 5}}`:                                           true,
		`{voters: {replicas: 5}}`:                                              true,
		`{storage: {size: 5Gi}}`:                                               true,
		`{rollout: {minReadySeconds: 1, restartedAt: "2026-11-30T00:00:00Z"}}`: true,
		`{upgradePolicy: Follow, paused: true}`:                                true,
		`{raft: {appendLinger: 5ms}}`:                                          false,
		`{log: {segmentBytes: 64Mi}}`:                                          false,
		`{podTemplate: {metadata: {labels: {a: b}}}}`:                          false,
	} {
		if got := RevisionName(orders(spec), "image"); (got == base) != same {
			t.Errorf("%s: revision %s, base %s, want same=%t", spec, got, base, same)
		}
	}
	if RevisionName(orders(`{}`), "other") == base {
		t.Error("another image gives the same revision")
	}
	if RevisionName(orders(`{raft: {fetchTimeout: 1s}}`), "image") != RevisionName(orders(`{raft: {fetchTimeout: 1000ms}}`), "image") {
		t.Error("1s and 1000ms give two revisions")
	}
}

func TestPodTemplate(t *testing.T) {
	for spec, want := range map[string]string{
		`{spec: {containers: [{name: quorum, resources: {limits: {memory: 1Gi}}}]}}`:            "",
		`{metadata: {labels: {team: data}, annotations: {a: b}}, spec: {priorityClassName: p}}`: "",
		`{spec: {containers: [{name: sidecar, image: s}]}}`:                                     "",
		`{spec: {terminationGracePeriodSeconds: 120, nodeSelector: {disk: fast}}}`:              "",
		`{spec: {restartPolicy: Always, automountServiceAccountToken: false}}`:                  "",
		`{spec: {volumez: []}}`:                                                                         `unknown field "volumez"`,
		`{spec: {hostNetwork: true}}`:                                                                   "spec.hostNetwork",
		`{spec: {hostname: h}}`:                                                                         "spec.hostname",
		`{spec: {serviceAccountName: admin}}`:                                                           "spec.serviceAccountName is admin",
		`{spec: {automountServiceAccountToken: true}}`:                                                  "automountServiceAccountToken",
		`{spec: {restartPolicy: Never}}`:                                                                "spec.restartPolicy is Never",
		`{spec: {terminationGracePeriodSeconds: 1}}`:                                                    "at least 10",
		`{spec: {securityContext: {runAsNonRoot: false}}}`:                                              "runAsNonRoot",
		`{spec: {securityContext: {runAsUser: 0}}}`:                                                     "root",
		`{spec: {volumes: [{name: data, emptyDir: {}}]}}`:                                               "spec.volumes[data]",
		`{spec: {containers: [{name: quorum, image: other}]}}`:                                          "set spec.image instead",
		`{spec: {containers: [{name: quorum, command: [sh]}]}}`:                                         "command",
		`{spec: {containers: [{name: quorum, env: [{name: NODE_ID, value: "7"}]}]}}`:                    "env[NODE_ID]",
		`{spec: {containers: [{name: quorum, ports: [{containerPort: 1}]}]}}`:                           "ports",
		`{spec: {containers: [{name: quorum, livenessProbe: {}}]}}`:                                     "Probe",
		`{spec: {containers: [{name: quorum, volumeMounts: [{name: x, mountPath: /var/lib}]}]}}`:        "volumeMounts[/var/lib]",
		`{spec: {containers: [{name: quorum, securityContext: {privileged: true}}]}}`:                   "privileged",
		`{spec: {containers: [{name: quorum, securityContext: {readOnlyRootFilesystem: false}}]}}`:      "readOnlyRootFilesystem",
		`{spec: {containers: [{name: quorum, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}}`:   "capabilities.add",
		`{spec: {securityContext: {seccompProfile: {type: Unconfined}}}}`:                               "seccompProfile.type is Unconfined",
		`{spec: {containers: [{name: quorum, securityContext: {seccompProfile: {type: Unconfined}}}]}}`: "seccompProfile.type is Unconfined",
		`{spec: {containers: [{name: quorum, securityContext: {procMount: Unmasked}}]}}`:                "procMount is Unmasked",
		`{spec: {activeDeadlineSeconds: 60}}`:                                                           "spec.activeDeadlineSeconds",
		`{spec: {serviceAccount: admin}}`:                                                               "spec.serviceAccount",
		`{spec: {tolerations: [{operator: Exists}]}}`:                                                   "",
		`{metadata: {labels: {kraft-operator.io/pool: x}}}`:                                             "labels[kraft-operator.io/pool]",
		`{metadata: {name: x}}`:                                                                         "metadata.name",
	} {
		_, err := Render(orders(`{podTemplate: `+spec+`}`), "cluster", "image")
		var invalid *InvalidTemplateError
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: refused: %v", spec, err)
		case want != "" && !errors.As(err, &invalid):
			t.Errorf("%s: got %v, want an InvalidTemplateError with %q", spec, err, want)
		case want != "" && !strings.Contains(err.Error(), want):
			t.Errorf("%s: got %v, want %q in it", spec, err, want)
		}
	}
}

// TestVotersStayOnALostNode: of several tolerations that fit a taint the first one counts.
func TestVotersStayOnALostNode(t *testing.T) {
	s := render(t, orders(`{podTemplate: {spec: {tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 30}]}}}`))
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		taint := &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		i := slices.IndexFunc(s.Voter.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint.Key || t.Key == "") && t.Effect == taint.Effect
		})
		if got := s.Voter.Spec.Tolerations[i]; got.TolerationSeconds != nil {
			t.Errorf("voters tolerate %s for %d s, want without limit", key, *got.TolerationSeconds)
		}
	}
}

// TestStoredBytesMakeTheSamePod: what another version of the operator finds stored is what it makes.
func TestStoredBytesMakeTheSamePod(t *testing.T) {
	mq := orders(`{podTemplate: {spec: {containers: [{name: quorum, env: [{name: A, value: b}]}, {name: sidecar, image: s}]}}}`)
	s := render(t, mq)
	stored, err := ReadRevision(Revision(mq, s, 7))
	if err != nil {
		t.Fatal(err)
	}
	a := plan.CreateMemberPod{NodeID: 2, Claim: "c", Revision: "r"}
	if diff := cmp.Diff(MemberPod(mq, s, a), MemberPod(mq, stored, a)); diff != "" {
		t.Errorf("Pod differs (-rendered +stored):\n%s", diff)
	}
	if n := len(FormatPod(mq, stored, plan.CreateFormatPod{}).Spec.Containers); n != 1 {
		t.Errorf("a format Pod has %d containers, want 1: a sidecar would keep it from ending", n)
	}
}

func TestIdentityAndClaimsReadBack(t *testing.T) {
	mq := orders(`{storage: {whenDeleted: Delete}}`)
	want := identity()
	cm := Identity(mq, want)
	cm.UID = "uid-cm"
	want.UID = cm.UID
	got, err := ReadIdentity(cm)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("record differs (-want +got):\n%s", diff)
	}
	pvc := Claim(mq, plan.CreateClaim{Name: want.Voters[1].Claim, NodeID: 1, ClusterID: want.ClusterID, Image: want.Image, Initial: want.Voters})
	pvc.UID = "uid-1"
	c, err := ReadClaim(pvc, mq.UID)
	if err != nil {
		t.Fatal(err)
	}
	plain := identity().Voters
	for i := range plain {
		plain[i].ClaimUID = ""
	}
	if diff := cmp.Diff(plan.Claim{Name: want.Voters[1].Claim, UID: "uid-1", NodeID: 1, ClusterID: want.ClusterID, Image: want.Image, Initial: plain, Owned: true}, c); diff != "" {
		t.Errorf("claim differs (-want +got):\n%s", diff)
	}
	delete(pvc.Labels, v1alpha1.LabelNodeID)
	if _, err := ReadClaim(pvc, mq.UID); err == nil {
		t.Error("a claim without a node id was read")
	}
}

// TestRL13Budgets: an absolute number, whatever the number of observers; broken members may always go.
func TestRL13Budgets(t *testing.T) {
	for voters, want := range map[int]int32{1: 0, 3: 2, 5: 4, 7: 6} {
		for _, observers := range []int{0, 1, 2, 10} {
			mq := orders(fmt.Sprintf(`{observers: {replicas: %d}}`, observers))
			for _, o := range Shared(mq, voters) {
				pdb, ok := o.(*policyv1.PodDisruptionBudget)
				if !ok {
					continue
				}
				wantMin := want
				if pdb.Name == "orders-observers" {
					wantMin = int32(max(observers-1, 0))
				}
				s := pdb.Spec
				if s.MaxUnavailable != nil || s.MinAvailable.IntVal != wantMin || s.MinAvailable.StrVal != "" || *s.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
					t.Errorf("%d voters, %d observers: %s has %+v, want minAvailable %d", voters, observers, pdb.Name, s, wantMin)
				}
			}
		}
	}
}

// TestDN01PeersArePublishedBeforeTheyAreReady, and clients' members only after.
func TestDN01PeersArePublishedBeforeTheyAreReady(t *testing.T) {
	for _, o := range Shared(orders(`{}`), 3) {
		if s, ok := o.(*corev1.Service); ok {
			if isPeers := s.Name == "orders-peers"; s.Spec.PublishNotReadyAddresses != isPeers || (s.Spec.ClusterIP == corev1.ClusterIPNone) != isPeers {
				t.Errorf("Service %s: publishNotReadyAddresses %t, clusterIP %q", s.Name, s.Spec.PublishNotReadyAddresses, s.Spec.ClusterIP)
			}
		}
	}
}

// TestCV01LongestName: with the longest name that the schema admits every derived name is one.
func TestCV01LongestName(t *testing.T) {
	mq := orders(`{}`)
	mq.Name = strings.Repeat("a", 40)
	for _, o := range objects(t, mq) {
		if errs := validation.IsDNS1123Label(o.GetName()); len(errs) > 0 && !strings.HasPrefix(o.GetName(), "orders-") {
			t.Errorf("%T %s: %v", o, o.GetName(), errs)
		}
		for k, v := range o.GetLabels() {
			if errs := validation.IsValidLabelValue(v); len(errs) > 0 {
				t.Errorf("%T label %s: %v", o, k, errs)
			}
		}
		if pod, ok := o.(*corev1.Pod); ok && len(pod.Spec.Hostname) > 63 {
			t.Errorf("host name %s has %d characters, want at most 63", pod.Spec.Hostname, len(pod.Spec.Hostname))
		}
	}
}

// TestOP02DefaultsAreNoDrift: what the API server and others add is not ours to fight.
func TestOP02DefaultsAreNoDrift(t *testing.T) {
	mq := orders(`{observers: {replicas: 2}}`)
	for _, want := range Shared(mq, 3) {
		live := want.DeepCopyObject().(Object)
		live.SetResourceVersion("7")
		live.SetAnnotations(map[string]string{"other": "controller"})
		live.SetOwnerReferences(append(live.GetOwnerReferences(), metav1.OwnerReference{UID: "other"}))
		if s, ok := live.(*corev1.Service); ok {
			s.Spec.SessionAffinity, s.Spec.IPFamilies = corev1.ServiceAffinityNone, []corev1.IPFamily{corev1.IPv4Protocol}
		}
		if !Current(live, want) {
			t.Errorf("%T %s: defaults are taken for drift", want, want.GetName())
		}
	}
	for _, want := range Shared(orders(`{}`), 3) { // fewer observers: minAvailable goes from 1 to 0
		if pdb, ok := want.(*policyv1.PodDisruptionBudget); ok && pdb.Name == "orders-observers" {
			if live := Shared(mq, 3)[0]; Current(live, want) {
				t.Error("a budget that asks for too many is taken for current")
			}
		}
	}
	edited := peers(mq)
	edited.Spec.Ports = edited.Spec.Ports[:2]
	if Current(edited, peers(mq)) {
		t.Error("RL-15: a Service that lost a port is taken for current")
	}
}

func TestUserTemplateOfNothing(t *testing.T) {
	for _, raw := range []*runtime.RawExtension{nil, {}, {Raw: []byte(`{}`)}} {
		if _, err := userTemplate(raw); err != nil {
			t.Errorf("%v: %v", raw, err)
		}
	}
}

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/kraft-operator/kraft-operator/api/v1alpha1"
)

const crdFile = "../../config/crd/bases/kraft-operator.io_metadataquorums.yaml"

// crd is the generated definition, checked and used as an API server would, without one.
type crd struct {
	schema    *structuralschema.Structural
	validator validation.SchemaValidator
	rules     *schemacel.Validator
}

func readCRD(t *testing.T) (*apiextensionsv1.CustomResourceDefinition, *apiextensions.CustomResourceDefinition) {
	t.Helper()
	data, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, internal, nil); err != nil {
		t.Fatal(err)
	}
	return v1, internal
}

func newCRD(t *testing.T) *crd {
	t.Helper()
	_, internal := readCRD(t)
	openAPI := internal.Spec.Validation
	if openAPI == nil {
		openAPI = internal.Spec.Versions[0].Schema
	}
	schema, err := structuralschema.NewStructural(openAPI.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(openAPI.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return &crd{schema, validator, schemacel.NewValidator(schema, true, celconfig.PerCallLimit)}
}

// admit plays the API server for one write: prune, default, validate. old is nil for a create.
func (c *crd) admit(t *testing.T, text string, old map[string]any) (map[string]any, field.ErrorList) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(data, &obj); err != nil { // whole numbers stay whole
		t.Fatal(err)
	}
	pruning.Prune(obj, c.schema, true)
	defaulting.Default(obj, c.schema)
	if old != nil && obj["metadata"].(map[string]any)["name"] != old["metadata"].(map[string]any)["name"] {
		t.Fatal("an update keeps its name")
	}
	if old != nil { // as the main resource's strategy does: status is the stored one
		obj["status"] = old["status"]
	}
	errs := validation.ValidateCustomResource(nil, obj, c.validator)
	var oldAny any
	if old != nil {
		oldAny = old
	}
	celErrs, _ := c.rules.Validate(t.Context(), nil, c.schema, obj, oldAny, celconfig.RuntimeCELCostBudget)
	return obj, append(errs, celErrs...)
}

// TestDefinition is what an API server checks when the definition is applied, the cost of each rule included.
func TestDefinition(t *testing.T) {
	v1, internal := readCRD(t)
	internal.Status.StoredVersions = []string{"v1alpha1"} // as the API server fills in
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	data, err := json.Marshal(v1)
	if err != nil {
		t.Fatal(err)
	}
	// UP-03: client-side apply keeps the whole object in an annotation of at most 256 KiB.
	if len(data) > 100<<10 {
		t.Errorf("the definition has %d bytes, want at most %d", len(data), 100<<10)
	}
}

// TestCV08NamesClashWithNobody keeps to words that no common kind uses.
func TestCV08NamesClashWithNobody(t *testing.T) {
	v1, _ := readCRD(t)
	names := v1.Spec.Names
	got := append([]string{names.Plural, names.Singular}, names.ShortNames...)
	if want := []string{"metadataquorums", "metadataquorum", "mq"}; !slices.Equal(got, want) {
		t.Errorf("names are %v, want %v", got, want)
	}
	if slices.Contains(names.Categories, "all") {
		t.Error("category all lists it with kinds that hold secrets")
	}
}

const name = "\nmetadata: {name: orders}\n"

func TestCreate(t *testing.T) {
	c := newCRD(t)
	for sentence, test := range map[string]struct {
		yaml string
		want string // a part of an error; "" for none
	}{
		"an empty spec is a quorum of three": {name + "spec: {}", ""},
		"a spec is needed":                   {name, "spec: Required value"},
		"everything at once": {name + `spec:
  clusterID: 5L6g3nShT-eMCtK--X86sw
  image: registry.example.com/quorum:1
  upgradePolicy: Follow
  voters: {replicas: 5}
  observers: {replicas: 128}
  storage: {size: 20Gi, storageClassName: fast, accessMode: ReadWriteOncePod, whenDeleted: Delete, whenScaled: Delete}
  raft: {electionTimeout: 500ms, fetchTimeout: 1.5s, electionBackoffMax: 1s, requestTimeout: 2s, appendLinger: 0s}
  log: {segmentBytes: 64Mi}
  rollout: {strategy: InPlace, handoff: {maxPause: 100ms, catchUpTimeout: 1m}, minReadySeconds: 0, memberTimeout: 1h30m, onMemberFailure: Pause, restartedAt: "2026-11-30T00:00:00Z"}
  podTemplate: {spec: {anything: goes}}
  paused: true`, ""},
		"a size may be a plain number":                {name + "spec: {storage: {size: 1073741824}, log: {segmentBytes: 8388608}}", ""},
		"an empty image is as none":                   {name + `spec: {image: ""}`, ""},
		"CV-01 a name of 40 characters":               {"metadata: {name: " + strings.Repeat("a", 40) + "}\nspec: {}", ""},
		"CV-01 a name of 41 characters":               {"metadata: {name: " + strings.Repeat("a", 41) + "}\nspec: {}", "at most 40 characters"},
		"CV-01 a name of one character":               {"metadata: {name: q}\nspec: {}", ""},
		"CV-01 a name with a dot":                     {"metadata: {name: my.orders}\nspec: {}", "at most 40 characters"},
		"CV-01 a name that begins with a digit":       {"metadata: {name: 1orders}\nspec: {}", "begin with a letter"},
		"two voters":                                  {name + "spec: {voters: {replicas: 2}}", "must be 1, 3, 5 or 7"},
		"nine voters":                                 {name + "spec: {voters: {replicas: 9}}", "must be 1, 3, 5 or 7"},
		"more observers than a leader keeps track of": {name + "spec: {observers: {replicas: 129}}", "less than or equal to 128"},
		"a cluster id that is none":                   {name + "spec: {clusterID: orders}", "spec.clusterID"},
		"an image with a blank":                       {name + "spec: {image: 'a b'}", "spec.image"},
		"an unknown strategy":                         {name + "spec: {rollout: {strategy: Surge}}", "supported values: \"InPlace\""},
		"CV-04 a timeout without a unit":              {name + "spec: {raft: {fetchTimeout: '2000'}}", "spec.raft.fetchTimeout"},
		"CV-04 a negative timeout":                    {name + "spec: {raft: {fetchTimeout: -1s}}", "spec.raft.fetchTimeout"},
		"CV-04 a fetch timeout of a millisecond":      {name + "spec: {raft: {fetchTimeout: 1ms, electionBackoffMax: 10ms}}", "between 100ms and 1m"},
		"CV-04 a back-off above the fetch timeout":    {name + "spec: {raft: {fetchTimeout: 500ms}}", "electionBackoffMax"},
		"CV-04 a linger of an hour":                   {name + "spec: {raft: {appendLinger: 1h}}", "at most 1s"},
		"a segment smaller than a batch":              {name + "spec: {log: {segmentBytes: 1Mi}}", "at least 8Mi"},
		"a segment of two gigabytes":                  {name + "spec: {log: {segmentBytes: 2Gi}}", "below 2Gi"},
		"a pause of a minute":                         {name + "spec: {rollout: {handoff: {maxPause: 1m}}}", "between 10ms and 2s"},
		"a member timeout of a second":                {name + "spec: {rollout: {memberTimeout: 1s}}", "at least 1m"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, errs := c.admit(t, test.yaml, nil)
			check(t, errs, test.want)
		})
	}
}

func TestSampleIsAccepted(t *testing.T) {
	data, err := os.ReadFile("../../config/samples/metadataquorum.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, errs := newCRD(t).admit(t, string(data), nil)
	check(t, errs, "")
	if err := yaml.UnmarshalStrict(data, &v1alpha1.MetadataQuorum{}); err != nil {
		t.Error(err)
	}
}

// TestEffectiveShowsEveryDefault: what a person sees in status for an empty spec.
func TestEffectiveShowsEveryDefault(t *testing.T) {
	got, err := json.Marshal(v1alpha1.Effective(&v1alpha1.MetadataQuorumSpec{}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"upgradePolicy":"Manual","voters":3,"observers":0,` +
		`"storage":{"size":"1Gi","accessMode":"ReadWriteOnce","whenDeleted":"Retain","whenScaled":"Retain"},` +
		`"raft":{"electionTimeout":"1s","fetchTimeout":"2s","electionBackoffMax":"1s","requestTimeout":"2s","appendLinger":"0s"},` +
		`"segmentBytes":"1Gi",` +
		`"rollout":{"strategy":"InPlace","maxPause":"250ms","catchUpTimeout":"10s","minReadySeconds":10,"memberTimeout":"10m0s","onMemberFailure":"Pause"}}`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestGO01DefaultsAreFew: what the schema fills in, and nothing else, now and in later versions.
func TestGO01DefaultsAreFew(t *testing.T) {
	obj, errs := newCRD(t).admit(t, name+"spec: {}", nil)
	check(t, errs, "")
	got, err := json.Marshal(map[string]any{"spec": obj["spec"], "status": obj["status"]})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"spec":{"observers":{"replicas":0}},"status":{"observedGeneration":-1}}`; string(got) != want {
		t.Errorf("defaulted to %s, want %s", got, want)
	}
	mq := &v1alpha1.MetadataQuorum{}
	raw, _ := json.Marshal(obj)
	if err := json.Unmarshal(raw, mq); err != nil {
		t.Fatal(err)
	}
	if r := v1alpha1.Resolve(&mq.Spec); *r.Voters.Replicas != 3 || r.Storage.Size.String() != "1Gi" || mq.Spec.Voters != nil {
		t.Errorf("resolved to %+v; the spec itself must stay as it is", r)
	}
}

func TestCV02Update(t *testing.T) {
	c := newCRD(t)
	const id, other = "5L6g3nShT-eMCtK--X86sw", "AAAAAAAAAAAAAAAAAAAAAQ"
	for sentence, test := range map[string]struct {
		old, new string
		want     string
	}{
		"the same voters written out":          {"{}", "{voters: {replicas: 3}}", ""},
		"the same voters left out":             {"{voters: {replicas: 3}}", "{voters: {}}", ""},
		"voters from nothing to five":          {"{}", "{voters: {replicas: 5}}", "does not add or remove voters"},
		"voters from five to nothing":          {"{voters: {replicas: 5}}", "{}", "does not add or remove voters"},
		"voters from one to three":             {"{voters: {replicas: 1}}", "{voters: {replicas: 3}}", "does not add or remove voters"},
		"observers":                            {"{}", "{observers: {replicas: 5}}", ""},
		"an image":                             {"{}", "{image: new}", ""},
		"the same size written out":            {"{}", "{storage: {size: 1Gi}}", ""},
		"another size":                         {"{}", "{storage: {size: 2Gi}}", "storage.size is immutable"},
		"a size from a number to a text":       {"{storage: {size: 1}}", "{storage: {size: '1'}}", ""},
		"another class":                        {"{storage: {storageClassName: a}}", "{storage: {storageClassName: b}}", "storageClassName is immutable"},
		"a first class":                        {"{}", "{storage: {storageClassName: b}}", "storageClassName is immutable"},
		"no class any more":                    {"{storage: {storageClassName: b}}", "{}", "storageClassName is immutable"},
		"the default mode written out":         {"{}", "{storage: {accessMode: ReadWriteOnce}}", ""},
		"another mode":                         {"{}", "{storage: {accessMode: ReadWriteOncePod}}", "accessMode is immutable"},
		"claims that go with the quorum":       {"{}", "{storage: {whenDeleted: Delete}}", ""},
		"another cluster id":                   {"{clusterID: " + id + "}", "{clusterID: " + other + "}", "spec.clusterID is immutable"},
		"no cluster id any more":               {"{clusterID: " + id + "}", "{}", "spec.clusterID is immutable"},
		"a first cluster id, the quorum's own": {"{}", "{clusterID: " + id + "}", ""},
		"a first cluster id, not its own":      {"{}", "{clusterID: " + other + "}", "copy status.clusterID"},
	} {
		t.Run(sentence, func(t *testing.T) {
			old, errs := c.admit(t, name+"spec: "+test.old, nil)
			check(t, errs, "")
			old["status"] = map[string]any{"observedGeneration": int64(1), "clusterID": id}
			_, errs = c.admit(t, name+"spec: "+test.new, old)
			check(t, errs, test.want)
		})
	}
}

func check(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("refused: %v", errs.ToAggregate())
	case want != "" && !slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.Contains(e.Error(), want) }):
		t.Errorf("got %v, want %q in it", errs.ToAggregate(), want)
	}
}

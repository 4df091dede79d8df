package charts

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const chart = "kraft-operator"

// objects by kind and name.
type objects map[string]map[string]any

// TestChartRendersWhatKustomizeRenders: two ways to install, one result. The Namespace is Helm's to make
// (--create-namespace), and the definition carries Helm's word to keep it.
func TestChartRendersWhatKustomizeRenders(t *testing.T) {
	want := kustomize(t, "../config/default")
	delete(want, "Namespace kraft-operator-system")
	got := helm(t, "kraft-operator", "kraft-operator-system", nil)
	crd := got["CustomResourceDefinition metadataquorums.kraft-operator.io"]
	annotations := crd["metadata"].(map[string]any)["annotations"].(map[string]any)
	if annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("the definition goes with the release, and every MetadataQuorum with it")
	}
	delete(annotations, "helm.sh/resource-policy")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects differ (-config/default +chart):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	got := helm(t, "other", "ops", map[string]any{
		"image":            map[string]any{"repository": "registry.example.com/k", "tag": "v1", "pullPolicy": "Always"},
		"imagePullSecrets": []any{map[string]any{"name": "s"}},
		"replicas":         2,
		"crds":             map[string]any{"install": false},
	})
	if got["CustomResourceDefinition metadataquorums.kraft-operator.io"] != nil {
		t.Error("crds.install=false renders the definition")
	}
	deployment, err := yaml.Marshal(got["Deployment other-controller-manager"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"namespace: ops", "image: registry.example.com/k:v1", "value: registry.example.com/k:v1", "imagePullPolicy: Always", "replicas: 2", "imagePullSecrets:\n      - name: s"} {
		if !strings.Contains(string(deployment), want) {
			t.Errorf("no %q in\n%s", want, deployment)
		}
	}
}

// TestDefaultImageOfMembersIsTheManagersOwn: one image set in config/default names both.
func TestDefaultImageOfMembersIsTheManagersOwn(t *testing.T) {
	fs := filesys.MakeFsOnDisk()
	dir := t.TempDir()
	for _, sub := range []string{"crd/bases", "rbac", "manager", "default"} {
		if err := os.CopyFS(filepath.Join(dir, sub), os.DirFS(filepath.Join("../config", sub))); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.WriteFile(filepath.Join(dir, "crd/kustomization.yaml"), read(t, "../config/crd/kustomization.yaml")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "default/kustomization.yaml")
	if err := fs.WriteFile(file, append(read(t, file), "images: [{name: controller, newName: registry.example.com/k, newTag: v1}]\n"...)); err != nil {
		t.Fatal(err)
	}
	deployment, err := yaml.Marshal(kustomize(t, filepath.Join(dir, "default"))["Deployment kraft-operator-controller-manager"])
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(deployment), "registry.example.com/k:v1"); n != 2 {
		t.Errorf("the image stands %d times, want 2 (the manager's, and the members' by default):\n%s", n, deployment)
	}
}

// TestSamplesRender: the schema and its rules are the API tests' business.
func TestSamplesRender(t *testing.T) {
	if got := kustomize(t, "../config/samples"); got["MetadataQuorum orders"] == nil {
		t.Errorf("no quorum named orders in %v", got)
	}
}

// TestCopiesAreCurrent: what the chart takes from config/ is a copy, since Helm reads nothing outside of a chart.
func TestCopiesAreCurrent(t *testing.T) {
	for copied, source := range map[string]string{
		"kraft-operator/files/crd.yaml":  "../config/crd/bases/kraft-operator.io_metadataquorums.yaml",
		"kraft-operator/files/role.yaml": "../config/rbac/role.yaml",
	} {
		if !bytes.Equal(read(t, copied), read(t, source)) {
			t.Errorf("%s differs from %s: run make generate", copied, source)
		}
	}
}

func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return split(t, string(data))
}

// helm renders the chart as `helm template` does. Helm itself would bring some two hundred modules along; its templates
// are text/template with functions added, and this chart keeps to the few below. A template that uses another one
// doesn't parse here.
func helm(t *testing.T, release, namespace string, values map[string]any) objects {
	t.Helper()
	merged := map[string]any{}
	if err := yaml.Unmarshal(read(t, filepath.Join(chart, "values.yaml")), &merged); err != nil {
		t.Fatal(err)
	}
	overlay(merged, values)
	data := map[string]any{
		"Values":  merged,
		"Release": map[string]any{"Name": release, "Namespace": namespace},
		"Files":   files{},
	}
	found, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	for _, file := range found {
		tmpl, err := template.New(filepath.Base(file)).Option("missingkey=error").Funcs(functions).Parse(string(read(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := tmpl.Execute(&out, data); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".yaml" { // NOTES.txt is for people
			maps.Copy(all, split(t, out.String()))
		}
	}
	return all
}

type files struct{}

// Get reads a file of the chart.
func (files) Get(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(chart, name))
	return string(data), err
}

var functions = template.FuncMap{
	"toYaml": func(v any) (string, error) {
		b, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(b), "\n"), err
	},
	"fromYaml": func(s string) (map[string]any, error) {
		m := map[string]any{}
		return m, yaml.Unmarshal([]byte(s), &m)
	},
	"nindent": func(n int, s string) string {
		pad := "\n" + strings.Repeat(" ", n)
		return pad + strings.ReplaceAll(s, "\n", pad)
	},
	"splitList": func(sep, s string) []string { return strings.Split(s, sep) },
	"set":       func(m map[string]any, key string, value any) map[string]any { m[key] = value; return m },
	"dict":      func(key string, value any) map[string]any { return map[string]any{key: value} },
}

func overlay(base, over map[string]any) {
	for k, v := range over {
		if m, ok := v.(map[string]any); ok {
			if b, ok := base[k].(map[string]any); ok {
				overlay(b, m)
				continue
			}
		}
		base[k] = v
	}
}

func split(t *testing.T, text string) objects {
	t.Helper()
	all := objects{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		m := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(m) == 0 {
			continue
		}
		key := fmt.Sprintf("%s %s", m["kind"], m["metadata"].(map[string]any)["name"])
		if all[key] != nil {
			t.Fatalf("%s is rendered twice", key)
		}
		all[key] = m
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

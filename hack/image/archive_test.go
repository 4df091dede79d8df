package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func testImage() *Image {
	return &Image{
		Names:        []string{"localhost/kraft-operator:one", "localhost:5000/kraft-operator:two"},
		Architecture: "amd64",
		User:         "65532:65532",
		Entrypoint:   []string{"/manager"},
		Labels:       map[string]string{"b": "2", "a": "1"},
		Created:      time.Unix(1000, 0).UTC(),
		Files:        []File{{Path: "/quorum", Content: []byte("q")}, {Path: "/manager", Content: []byte("m")}},
	}
}

// read returns an archive's files and the headers that they had.
func read(t *testing.T, archive []byte) (files map[string][]byte, headers map[string]*tar.Header) {
	t.Helper()
	files, headers = make(map[string][]byte), make(map[string]*tar.Header)
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
	}
}

func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

func TestArchiveIsTheSameWheneverItIsMade(t *testing.T) {
	var first, second bytes.Buffer
	image := testImage()
	a, err := image.Write(&first)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(image.Files) // the order on the command line says nothing
	b, err := image.Write(&second)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("two archives of the same files differ: %s and %s", a, b)
	}
	if got := image.Files[1].Path; got != "/quorum" {
		t.Errorf("Write changed the caller's files: %s is second", got)
	}
}

func TestArchiveHoldsAnImageForContainerdAndForDocker(t *testing.T) {
	var b bytes.Buffer
	digest, err := testImage().Write(&b)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := read(t, b.Bytes())
	for name, content := range files {
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
				t.Errorf("blob %s has another digest", name)
			}
		}
	}

	x := decode[index](t, files["index.json"])
	if len(x.Manifests) != 2 {
		t.Fatalf("the index has %d manifests, want one a name", len(x.Manifests))
	}
	for i, want := range []string{"one", "two"} { // the second name has a port
		m := x.Manifests[i]
		if m.Digest != digest || m.Annotations["org.opencontainers.image.ref.name"] != want ||
			m.Annotations["io.containerd.image.name"] != testImage().Names[i] {
			t.Errorf("manifest %d of the index: %+v", i, m)
		}
	}
	m := decode[manifest](t, files[blobPath(x.Manifests[0])])
	config := decode[imageConfig](t, files[blobPath(m.Config)])
	if config.Config.User != "65532:65532" || config.RootFS.DiffIDs[0] != m.Layers[0].Digest || config.OS != "linux" {
		t.Errorf("configuration: %+v", config)
	}
	docker := decode[[]dockerManifest](t, files["manifest.json"])
	if len(docker) != 1 || len(docker[0].RepoTags) != 2 || files[docker[0].Config] == nil || files[docker[0].Layers[0]] == nil {
		t.Errorf("manifest.json: %+v", docker)
	}

	programs, headers := read(t, files[blobPath(m.Layers[0])])
	if got := slices.Sorted(maps.Keys(programs)); !slices.Equal(got, []string{"manager", "quorum"}) {
		t.Errorf("the layer holds %v", got)
	}
	for name, h := range headers {
		if h.Mode != 0o755 || h.Uid != 0 || !h.ModTime.Equal(time.Unix(1000, 0)) {
			t.Errorf("%s: mode %o, owner %d, time %v", name, h.Mode, h.Uid, h.ModTime)
		}
	}
}

func TestCommandLineNamesWhatIsWrong(t *testing.T) {
	for name, args := range map[string][]string{
		"has no tag":                       {"--name", "localhost:5000/x"},
		"is not /PATH=FILE":                {"--name", "x:1", "--out", t.TempDir() + "/o.tar", "relative=main.go"},
		"needs --name, --out":              {"--name", "x:1"},
		"only files right below / are":     {"--name", "x:1", "--out", t.TempDir() + "/o.tar", "/a/b=main.go"},
		"no such file":                     {"--name", "x:1", "--out", t.TempDir() + "/o.tar", "/a=absent"},
		`"no-equals-sign" is not KEY=VALU`: {"--label", "no-equals-sign"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v, want %q", args, err, name)
		}
	}
}

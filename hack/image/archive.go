package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Image is a container image of one layer that holds nothing but its files.
type Image struct {
	Names        []string // each with its tag
	Architecture string   // as GOARCH
	User         string   // "uid:gid"; empty is root
	Entrypoint   []string
	Labels       map[string]string
	Created      time.Time // also the time of every file
	Files        []File
}

// File is one program of an image: owned by root and executable by everybody.
type File struct {
	Path    string // absolute
	Content []byte
}

// Media types of the OCI image format specification, version 1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// descriptor points at a blob of the archive.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type runConfig struct {
	User       string            `json:"User,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// dockerManifest is what docker load reads; its paths are the OCI blobs.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// Write writes the image as an OCI image layout in a tar file, with the
// manifest.json that docker load wants beside it, as docker save does since its
// version 25. The layer is not compressed: the archive is for loading on the
// machine that made it. It answers the digest of the image's manifest.
func (i *Image) Write(w io.Writer) (digest string, err error) {
	layer, err := i.layer()
	if err != nil {
		return "", err
	}
	a := archive{tar: tar.NewWriter(w), time: i.Created}
	layerAt := a.blob(typeLayer, layer)
	configAt := a.json(typeConfig, imageConfig{
		Created: i.Created, Architecture: i.Architecture, OS: "linux",
		Config: runConfig{User: i.User, Entrypoint: i.Entrypoint, Labels: i.Labels},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{layerAt.Digest}},
	})
	manifestAt := a.json(typeManifest, manifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: configAt, Layers: []descriptor{layerAt},
	})

	x := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, name := range i.Names {
		named := manifestAt
		_, tag, _ := strings.Cut(path.Base(name), ":")
		named.Annotations = map[string]string{
			"io.containerd.image.name":          name, // what ctr images import and kind go by
			"org.opencontainers.image.ref.name": tag,
		}
		x.Manifests = append(x.Manifests, named)
	}
	a.file("index.json", encode(x))
	a.file("manifest.json", encode([]dockerManifest{{
		Config: blobPath(configAt), RepoTags: i.Names, Layers: []string{blobPath(layerAt)},
	}}))
	a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return manifestAt.Digest, a.close()
}

// layer is the tar file of the image's files, in the order of their paths.
func (i *Image) layer() ([]byte, error) {
	files := slices.Clone(i.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if path.Dir(f.Path) != "/" || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("%q: only files right below / are supported", f.Path)
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Path[1:], Size: int64(len(f.Content)), Mode: 0o755,
			ModTime: i.Created, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// archive writes files into a tar file and keeps the first error.
type archive struct {
	tar  *tar.Writer
	time time.Time
	err  error
}

func (a *archive) file(name string, content []byte) {
	if a.err != nil {
		return
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644,
		ModTime: a.time, Format: tar.FormatUSTAR,
	}
	if a.err = a.tar.WriteHeader(header); a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

// blob writes content under its own digest.
func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(content)}
	a.file(blobPath(d), content)
	return d
}

func (a *archive) json(mediaType string, value any) descriptor {
	return a.blob(mediaType, encode(value))
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.tar.Close()
}

func blobPath(d descriptor) string {
	return "blobs/" + strings.Replace(d.Digest, ":", "/", 1)
}

// encode is JSON with a fixed order: of struct fields as declared, of maps by key.
func encode(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", value, err)) // all values here are ours
	}
	return b
}

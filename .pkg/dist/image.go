package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Source: OCI image-spec 1.1, image-layout.md, manifest.md, config.md.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// imageUser is the UID in the image: it owns the state and nothing else.
const imageUser = 65532

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// layout is an image layout, packed as tar, with one image for each architecture.
type layout struct {
	tar *tar.Writer
	at  time.Time
}

// image has what .pkg/Containerfile builds: the program, its state folder, and nothing else.
func image(w io.Writer, version string, programs []string, at time.Time) error {
	l := &layout{tar.NewWriter(w), at}
	if err := entry(l.tar, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`), at); err != nil {
		return err
	}
	images := []descriptor{}
	for _, p := range programs {
		arch, file, _ := strings.Cut(p, "=")
		program, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		d, err := l.image(version, arch, program)
		if err != nil {
			return err
		}
		images = append(images, d)
	}
	index, err := l.json(typeIndex, map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": images})
	if err != nil {
		return err
	}
	// The second is what podman load and docker load name the image.
	index.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": tag(version), "io.containerd.image.name": "localhost/permesso:" + tag(version),
	}
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{index}})
	if err != nil {
		return err
	}
	if err := entry(l.tar, "index.json", 0o644, b, at); err != nil {
		return err
	}
	return l.tar.Close()
}

// tag is a version as the name of an image may have it.
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }

func (l *layout) image(version, arch string, program []byte) (d descriptor, err error) {
	layer, err := l.layer(program)
	if err != nil {
		return d, err
	}
	diff := sha256.Sum256(layer)
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return d, err
	}
	if _, err = z.Write(layer); err == nil {
		err = z.Close()
	}
	if err != nil {
		return d, err
	}
	content, err := l.blob(typeLayer, packed.Bytes())
	if err != nil {
		return d, err
	}
	created := l.at.Format(time.RFC3339)
	config, err := l.json(typeConfig, map[string]any{
		"created": created, "architecture": arch, "os": "linux",
		"config": map[string]any{
			"User":       fmt.Sprintf("%d:%d", imageUser, imageUser),
			"Env":        []string{"XDG_CONFIG_HOME=/etc", "PERMESSO_HOME=/var/lib/permesso"},
			"Entrypoint": []string{"/permesso"}, "Cmd": []string{"serve"},
			"Volumes":    map[string]any{"/var/lib/permesso": map[string]any{}},
			"StopSignal": "SIGTERM",
			"Labels": map[string]string{
				"org.opencontainers.image.title": "permesso", "org.opencontainers.image.version": version,
				"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/permesso-dev/permesso",
			},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(diff[:])}},
		"history": []map[string]any{{"created": created, "created_by": "make dist"}},
	})
	if err != nil {
		return d, err
	}
	d, err = l.json(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{content}})
	d.Platform = &platform{arch, "linux"}
	return d, err
}

// layer has the program, and the folder that a new volume is made from.
func (l *layout) layer(program []byte) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	if err := entry(t, "permesso", 0o755, program, l.at); err != nil {
		return nil, err
	}
	for _, dir := range []tar.Header{
		{Name: "var/", Mode: 0o755},
		{Name: "var/lib/", Mode: 0o755},
		{Name: "var/lib/permesso/", Mode: 0o700, Uid: imageUser, Gid: imageUser},
	} {
		dir.Typeflag, dir.ModTime, dir.Format = tar.TypeDir, l.at, tar.FormatUSTAR
		if err := t.WriteHeader(&dir); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return b.Bytes(), err
}

func (l *layout) json(mediaType string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, b)
}

func (l *layout) blob(mediaType string, b []byte) (descriptor, error) {
	sum := sha256.Sum256(b)
	err := entry(l.tar, "blobs/sha256/"+hex.EncodeToString(sum[:]), 0o644, b, l.at)
	return descriptor{MediaType: mediaType, Digest: digest(sum[:]), Size: len(b)}, err
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

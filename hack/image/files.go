package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is a file of a layer.
type file struct {
	name    string // without a slash in front
	mode    int64
	content []byte
}

// supportFiles are the files that the picker needs beside itself, without those
// that the base has.
func supportFiles(have map[string]bool) ([]file, error) {
	authorities, err := caBundle()
	if err != nil {
		return nil, err
	}
	var files []file
	for _, f := range []file{
		{name: "etc/group", mode: 0o644, content: []byte("nonroot:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities},
	} {
		if !have[f.name] {
			files = append(files, f)
		}
	}
	return files, nil
}

// caBundle returns Mozilla's root certificates as PEM. They come with a Go module,
// so go.sum pins them: the bundle of the machine that builds would not be the same
// everywhere. Roots that Mozilla trusts under a condition are left out, since PEM
// cannot say so.
func caBundle() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("the module with the root certificates holds none")
	}
	return out.Bytes(), nil
}

// layerOf makes a layer whose digest depends on the files alone: all times are
// 1970, all owners root.
func layerOf(files []file) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	for _, f := range files {
		if err := writeFolders(w, path.Dir(f.name), made); err != nil {
			return nil, err
		}
		if err := writeEntry(w, tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode}, f.content, time.Unix(0, 0)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
}

// writeFolders writes a folder and those above it, once each.
func writeFolders(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := writeFolders(w, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return writeEntry(w, tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil, time.Unix(0, 0))
}

func writeEntry(w *tar.Writer, header tar.Header, content []byte, at time.Time) error {
	header.Size, header.ModTime = int64(len(content)), at
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// writeArchive writes an OCI layout with one index into a tar file. A file that
// was there is replaced only when the new one is complete.
func writeArchive(archive, image string, index v1.ImageIndex, created time.Time) (err error) {
	ref, err := name.NewTag(image)
	if err != nil {
		return fmt.Errorf("name of the image: %w", err)
	}
	dir, err := os.MkdirTemp("", "warmpath-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(),
		"io.containerd.image.name":          containerdName(ref),
	})); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(archive), filepath.Base(archive)+"-partial-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name()) // nothing is left of it after the rename
	defer out.Close()
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := packFolder(out, dir, created); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), archive)
}

// containerdName is what "ctr images import" calls the image: Kubernetes knows
// Docker's registry by another name than the library here.
func containerdName(tag name.Tag) string {
	if host, path, _ := strings.Cut(tag.Name(), "/"); host == name.DefaultRegistry {
		return "docker.io/" + path
	}
	return tag.Name()
}

// packFolder writes a folder's files as a tar, in the order of their names.
func packFolder(out io.Writer, dir string, at time.Time) error {
	w := tar.NewWriter(out)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			return writeEntry(w, tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil, at)
		}
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		return writeEntry(w, tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content, at)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// push sends the one index of an archive to a registry, with the credentials that
// "docker login" and its like have stored.
func push(ctx context.Context, archive, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "warmpath-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpackArchive(archive, dir); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	index, err := onlyIndex(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("pushed %s@%s\n", ref, digest)
	return nil
}

// unpackArchive writes a tar's files into a folder, and never outside it.
func unpackArchive(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not an OCI archive: %w", err)
		}
		name := filepath.FromSlash(header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(name), 0o755)
		case tar.TypeReg:
			err = unpackFile(root, name, r)
		default:
			err = fmt.Errorf("not an OCI archive: %s is neither a file nor a folder", header.Name)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := root.Create(name)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, content); err != nil {
		return err
	}
	return out.Close()
}

// onlyIndex returns the index in a layout that holds just one.
func onlyIndex(dir string) (v1.ImageIndex, error) {
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 || !manifest.Manifests[0].MediaType.IsIndex() {
		return nil, errors.New("want an archive with one image for several platforms, as \"image build\" writes it")
	}
	return top.ImageIndex(manifest.Manifests[0].Digest)
}

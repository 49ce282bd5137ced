// Command dist writes the files of a release that need more than a shell: archives, an image, and the list of what
// the program is made of. The same input gives the same bytes: all times are SOURCE_DATE_EPOCH, and nothing else of
// the machine gets in.
//
//	dist archive FILE.tar.gz|FILE.zip FOLDER
//	dist image FILE.tar VERSION ARCH=PROGRAM...
//	dist sbom FILE.json VERSION PROGRAM...
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	at := time.Unix(seconds, 0).UTC()
	switch {
	case len(args) == 3 && args[0] == "archive":
		return write(args[1], func(w io.Writer) error { return archive(w, args[1], args[2], at) })
	case len(args) > 3 && args[0] == "image":
		return write(args[1], func(w io.Writer) error { return image(w, args[2], args[3:], at) })
	case len(args) > 3 && args[0] == "sbom":
		return write(args[1], func(w io.Writer) error { return sbom(w, args[2], args[3:], at) })
	}
	return fmt.Errorf("what is %q?", args)
}

func write(name string, fill func(io.Writer) error) error {
	var b bytes.Buffer
	if err := fill(&b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// archive packs a folder, in the order of names.
func archive(w io.Writer, name, dir string, at time.Time) error {
	if strings.HasSuffix(name, ".zip") {
		z := zip.NewWriter(w)
		err := each(dir, func(path string, mode fs.FileMode, b []byte) error {
			h := &zip.FileHeader{Name: path, Method: zip.Deflate, Modified: at}
			h.SetMode(mode)
			f, err := z.CreateHeader(h)
			if err == nil {
				_, err = f.Write(b)
			}
			return err
		})
		if err != nil {
			return err
		}
		return z.Close()
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := pack(z, dir, at); err != nil {
		return err
	}
	return z.Close()
}

// pack writes a folder as tar. Owner is root.
func pack(w io.Writer, dir string, at time.Time) error {
	t := tar.NewWriter(w)
	err := each(dir, func(path string, mode fs.FileMode, b []byte) error { return entry(t, path, mode, b, at) })
	if err != nil {
		return err
	}
	return t.Close()
}

func entry(t *tar.Writer, path string, mode fs.FileMode, b []byte, at time.Time) error {
	if err := t.WriteHeader(&tar.Header{Name: path, Mode: int64(mode.Perm()), Size: int64(len(b)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(b)
	return err
}

// each calls do for every file below dir.
func each(dir string, do func(path string, mode fs.FileMode, b []byte) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info, err := d.Info(); err != nil {
			return err
		} else if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return do(filepath.ToSlash(name), mode, b)
	})
}

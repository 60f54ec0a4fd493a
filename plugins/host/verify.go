package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// openVerified opens the plugin's file and checks it and the further files against what they must be. The open file
// is the one that was hashed, so running it leaves nobody a moment to put another in its place.
func openVerified(o Options) (*os.File, error) {
	f, err := os.Open(o.Path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, configuration("missing", fmt.Errorf("there is no file %s: install the plugin there, or name its folder",
				o.Path))
		}
		return nil, fileError(err)
	}
	err = func() error {
		info, err := f.Stat()
		if err != nil {
			return fileError(err)
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return configuration("not_executable",
				fmt.Errorf("%s is not an executable file (mode %s): make it one with chmod +x, or name the right file", o.Path,
					info.Mode()))
		}
		if o.SHA256 != "" {
			if err := checkSum(f, o.Path, o.SHA256); err != nil {
				return err
			}
		}
		for path, want := range o.Files {
			if err := checkFile(path, want); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(path, want string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return configuration("missing", fmt.Errorf("there is no file %s, which the plugin needs", path))
	}
	if err != nil {
		return fileError(err)
	}
	defer func() { _ = f.Close() }()
	return checkSum(f, path, want)
}

// Sum returns the SHA-256 of a file as Options.SHA256 wants it.
func Sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return sumOf(f)
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}

// checkSum reads the file to its end and leaves it at its start.
func checkSum(f *os.File, path, want string) error {
	got, err := sumOf(f)
	if err != nil {
		return fileError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fileError(err)
	}
	if got != strings.ToLower(want) {
		return configuration("checksum",
			fmt.Errorf("sha256 of %s is %s, expected %s: put the expected file back, or, if this one is meant, "+
				"pin it (embedsidecar plugins register, or its sha256 in the configuration)", path, got, strings.ToLower(want)))
	}
	return nil
}

// fileError classes a failure to read a file: no descriptors or no memory passes, the rest needs a person.
func fileError(err error) error {
	if isResource(err) {
		return &embed.Error{Class: embed.Resource, Code: "resource", Err: err}
	}
	return configuration("unreadable", err)
}

// isScript reports whether the file begins with "#!". It leaves the file at its start.
func isScript(f *os.File) bool {
	var head [2]byte
	n, _ := f.ReadAt(head[:], 0)
	return n == 2 && head == [2]byte{'#', '!'}
}

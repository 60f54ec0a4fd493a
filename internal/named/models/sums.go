// Package models keeps model folders: it finds and verifies them, makes new ones of what somebody published, and
// fetches that from a hub. A folder is in place whole or not at all; what is in it is what its SHA256SUMS says. It
// runs no model: whoever imports one says how to try it.
package models

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// SumsFile lists the sha256 of every file of a model folder, as sha256sum writes it.
const SumsFile = "SHA256SUMS"

// Sums are the sha256 of files, 64 hexadecimal digits, by name with slashes.
type Sums map[string]string

const maxSumsBytes = 1 << 20

// ParseSums reads the content of a SHA256SUMS file.
func ParseSums(data []byte) (Sums, error) {
	sums := Sums{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for number := 1; lines.Scan(); number++ {
		sum, name, ok := strings.Cut(lines.Text(), " ")
		name = strings.TrimPrefix(strings.TrimLeft(name, " *"), "./")
		if raw, err := hex.DecodeString(sum); !ok || err != nil || len(raw) != sha256.Size || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("line %d is not a sha256 and the name of a file", number)
		}
		sums[name] = strings.ToLower(sum)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(sums) == 0 {
		return nil, errors.New("it lists no file")
	}
	return sums, nil
}

// ReadSums reads the list of a folder.
func ReadSums(folder string) (Sums, error) {
	data, err := readLimited(filepath.Join(folder, SumsFile), maxSumsBytes)
	if err != nil {
		return nil, fmt.Errorf("read model folder: %w", err)
	}
	sums, err := ParseSums(data)
	return sums, wrap.Errorf(err, "read %s", filepath.Join(folder, SumsFile))
}

// String returns the content of a SHA256SUMS file.
func (s Sums) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s  %s\n", s[name], name)
	}
	return b.String()
}

// Verify compares every listed file of a folder with its sum. The problems come in the order of names, one for each
// file that is missing, damaged, or there without being listed; err is only of a folder that has no list.
func Verify(ctx context.Context, folder string) (problems []string, err error) {
	sums, err := ReadSums(folder)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("verify model folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch got, err := fileSum(openRegular(root, name)); {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, name+" is missing")
		case err != nil:
			problems = append(problems, fmt.Sprintf("%s cannot be read: %s", name, err))
		case got != sums[name]:
			problems = append(problems, fmt.Sprintf("%s has sha256 %s, but %s says %s", name, got, SumsFile, sums[name]))
		}
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == SumsFile {
			return err
		}
		if _, listed := sums[name]; !listed {
			problems = append(problems, name+" is not listed in "+SumsFile)
		}
		return nil
	})
	return problems, err
}

// sumAll returns the sums of all files of a folder.
func sumAll(folder string) (Sums, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	sums := Sums{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == SumsFile {
			return err
		}
		sums[name], err = fileSum(openRegular(root, name))
		return err
	})
	return sums, err
}

// openRegular opens a file of a folder and nothing else: to open a pipe waits for somebody who writes into it.
func openRegular(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", filepath.Join(root.Name(), name))
	}
	if err != nil {
		return nil, err
	}
	return root.Open(name)
}

func readLimited(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, limit)
	}
	return data, err
}

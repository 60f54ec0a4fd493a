// Package models manages model folders: it finds and verifies them, makes new ones from published models, and downloads
// these from a hub. A folder is installed completely or not at all, and its SHA256SUMS lists its files. It runs no
// model: the caller of an import says how to test it.
package models

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// A download is one file in progress: NAME.part grows until it is complete, across connections and processes.
// NAME.part.tag has the version of the file that it is a part of.
type download struct {
	*puller

	name, url, part string
	want            string // required sum; "": any
	sum             string // the sum that the server reports, if any
	most            int64  // maximum size; 0: the default
	total           int64  // size of the file; -1: unknown
	spoiled         bool   // a complete file was wrong once
}

// A permanent error is one that a retry would meet again.
type permanent struct{ err error }

func (e *permanent) Error() string { return e.err.Error() }
func (e *permanent) Unwrap() error { return e.err }

// run downloads until the file is complete or the retries are used up.
func (d *download) run(ctx context.Context) (sum string, err error) {
	pause, failures := d.Pause, 0
	for {
		before := d.size()
		sum, err := d.attempt(ctx)
		if err == nil {
			return sum, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if stop, ok := errors.AsType[*permanent](err); ok {
			return "", stop.err
		}
		if d.size() > before {
			failures, pause = 0, d.Pause
		}
		if failures++; failures > d.Retries {
			return "", fmt.Errorf("gave up after %d retries without progress: %w; the next pull continues from here", failures, err)
		}
		d.Log.WarnContext(ctx, "download was cut off", "file", d.name, "bytes", d.size(), "error", err)
		if !sleep.For(ctx, pause) {
			return "", ctx.Err()
		}
		pause = min(2*pause, maxPause)
	}
}

func (d *download) size() int64 {
	info, err := os.Stat(d.part)
	if err != nil {
		return 0
	}
	return info.Size()
}

// attempt makes one request and stores the response. Without an error the part is complete.
func (d *download) attempt(ctx context.Context) (sum string, err error) {
	// A server that sends nothing for too long is abandoned.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := fmt.Errorf("the server sent nothing for %s", d.Stall)
	watch := time.AfterFunc(d.Stall, func() { cancel(stalled) })
	defer watch.Stop()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, http.NoBody)
	if err != nil {
		return "", &permanent{err}
	}
	request.Header.Set("Accept-Encoding", "identity") // otherwise ranges would count other bytes
	if d.Token != "" {                                // net/http does not send it to other hosts on a redirect
		request.Header.Set("Authorization", "Bearer "+d.Token)
	}
	have, tag := d.size(), d.tag()
	if have > 0 && tag != "" {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(have, 10)+"-")
		request.Header.Set("If-Range", tag)
	}
	response, err := d.Client.Do(request)
	if err != nil {
		return "", cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = response.Body.Close() }()
	from, err := d.accept(response, have)
	if err != nil {
		return "", err
	}
	if err := d.take(response.Body, from, watch); err != nil {
		return "", cmp.Or(context.Cause(ctx), err)
	}
	return d.check()
}

// accept reads the header of a response and returns the offset of its body.
func (d *download) accept(response *http.Response, have int64) (from int64, err error) {
	d.total = -1
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		d.total = response.ContentLength
	case code == http.StatusPartialContent:
		var first, last int64
		if _, err := fmt.Sscanf(response.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last,
			&d.total); err != nil || first != have || d.total <= last {
			return 0, errors.Join(fmt.Errorf("the server answered with the range %q, not with what comes after byte %d",
				response.Header.Get("Content-Range"), have), d.drop())
		}
		from = first
	case code == http.StatusRequestedRangeNotSatisfiable:
		return 0, errors.Join(errors.New("the server has no more of the file than was downloaded"), d.drop())
	case code == http.StatusNotFound:
		return 0, &permanent{errAbsent}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		way := "set --token-file to a file with a token of an account that may read it"
		if d.Token != "" {
			way = "the account of the token may not read it: accept the model's terms on the hub, or use another token"
		}
		return 0, &permanent{fmt.Errorf("the hub answers %s: it does not exist, or access is restricted; %s", response.Status,
			way)}
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= http.StatusInternalServerError:
		return 0, fmt.Errorf("the hub answers %s", response.Status)
	default:
		return 0, &permanent{fmt.Errorf("the hub answers %s", response.Status)}
	}
	if media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); media == "text/html" {
		return 0, &permanent{errors.New("the hub answers with a web page (HTML) in its place: is --hub the address of a hub, and " +
			"does a proxy on the way ask for a login?")}
	}
	if d.most > 0 && d.total > d.most {
		return 0, &permanent{errTooLarge}
	}
	if d.total > maxModelBytes {
		return 0, &permanent{fmt.Errorf("the file has %d bytes: more than a model may have", d.total)}
	}
	d.sum = ""
	for _, header := range []string{"X-Linked-Etag", "Etag"} {
		if tag := strings.Trim(response.Header.Get(header), `"`); d.sum == "" && folder.IsSum(tag) {
			d.sum = tag
		}
	}
	// Only a strong tag guarantees identical bytes.
	tag := response.Header.Get("Etag")
	if strings.HasPrefix(tag, "W/") {
		tag = ""
	}
	return from, d.keep(tag)
}

func (d *download) tag() string {
	tag, err := readLimited(d.part+".tag", 1<<10)
	if err != nil {
		return ""
	}
	return string(tag)
}

// create opens a file for writing. It does not follow a symbolic link, which another user may have made.
func create(name string, flags int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|flags, perm)
}

func (d *download) keep(tag string) error {
	file, err := create(d.part+".tag", os.O_TRUNC, 0o600)
	if err != nil {
		return &permanent{err}
	}
	_, err = file.WriteString(tag)
	return errors.Join(err, file.Close())
}

func (d *download) drop() error {
	return errors.Join(removeIfThere(d.part), removeIfThere(d.part+".tag"))
}

// take writes a body after the first bytes of the part.
func (d *download) take(body io.Reader, from int64, watch *time.Timer) (err error) {
	file, err := create(d.part, 0, 0o644) // everyone may read a model
	if err != nil {
		return &permanent{err}
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(from); err != nil {
		return &permanent{err}
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return &permanent{err}
	}
	const bufferBytes = 256 << 10
	buffer := make([]byte, bufferBytes)
	for done := from; ; {
		d.Progress(d.name, done, d.total)
		n, err := body.Read(buffer)
		if n > 0 {
			watch.Reset(d.Stall)
			if _, err := file.Write(buffer[:n]); err != nil {
				return &permanent{fmt.Errorf("write %s: %w", d.part, err)} // such as a full disk
			}
			if done += int64(n); done > maxModelBytes {
				return &permanent{fmt.Errorf("the file has more than %d bytes: more than a model may have", int64(maxModelBytes))}
			}
			continue
		}
		switch {
		case errors.Is(err, io.EOF) && d.total >= 0 && done != d.total:
			return fmt.Errorf("the connection ended after %d of %d bytes", done, d.total)
		case errors.Is(err, io.EOF):
			return file.Sync() // before the rename: without a pin, a truncated file would go unnoticed
		case err != nil:
			return err
		}
	}
}

// check compares the complete part with the known sums. A wrong file is deleted and downloaded once more, from the
// beginning.
func (d *download) check() (string, error) {
	sum, err := fileSum(os.Open(d.part))
	if err != nil {
		return "", &permanent{err}
	}
	source := "its pin"
	want := d.want
	if want == "" {
		want, source = d.sum, "the hub"
	}
	if want == "" && strings.HasSuffix(d.name, ".json") {
		if data, err := readLimited(d.part, maxJSONBytes); err != nil || !json.Valid(data) {
			return "", errors.Join(&permanent{errors.New("the hub's answer is not valid JSON")}, d.drop())
		}
	}
	if want == "" || sum == want {
		return sum, removeIfThere(d.part + ".tag")
	}
	problem := fmt.Errorf("it has sha256 %s, but %s says %s", sum, source, want)
	if err := d.drop(); err != nil {
		return "", &permanent{err}
	}
	if d.spoiled {
		return "", &permanent{fmt.Errorf("%w, twice: it is damaged on the way, or it is another file", problem)}
	}
	d.spoiled = true
	return "", problem
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fileSum returns the SHA-256 of an opened file, and closes it; or it returns the error of opening it.
func fileSum(file *os.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// SumsFile lists the sha256 of every file of a model folder, in the format of sha256sum.
const SumsFile = folder.SumsFile

// Sums maps file names with slashes to their sha256 in 64 hexadecimal digits.
type Sums map[string]string

const maxSumsBytes = 1 << 20

// ParseSums reads the content of a SHA256SUMS file.
func ParseSums(data []byte) (Sums, error) {
	sums, err := folder.ParseSums(data)
	if err != nil {
		return nil, err
	}
	if len(sums) == 0 {
		return nil, errors.New("it lists no file")
	}
	return sums, nil
}

// ReadSums reads the SHA256SUMS of a folder.
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

// Verify compares every listed file of a folder with its sum. It returns a problem for each file that is missing,
// damaged or not listed, sorted by name; err means that the folder has no list.
func Verify(ctx context.Context, home string) (problems []string, err error) {
	sums, err := ReadSums(home)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return nil, fmt.Errorf("verify model folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch got, err := fileSum(folder.OpenRegular(root.OpenFile, name)); {
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

// sumAll writes the sums of all files of a folder to its SHA256SUMS.
func sumAll(home string) error {
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	sums := Sums{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == SumsFile {
			return err
		}
		sums[name], err = fileSum(folder.OpenRegular(root.OpenFile, name))
		return err
	})
	if err != nil {
		return err
	}
	return root.WriteFile(SumsFile, []byte(sums.String()), 0o644) //nolint:mnd // everyone may read a model
}

func readLimited(path string, limit int64) ([]byte, error) {
	file, err := folder.OpenRegular(os.OpenFile, path)
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

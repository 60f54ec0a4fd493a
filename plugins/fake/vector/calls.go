package vector

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Call is one call that the fake embedder received.
type Call struct {
	Kind   string   // "document" or "query"
	Hashes []string // Hash of each text, in the order of the call
}

// AppendLine appends the call's line to a buffer: kind, number of texts, and the hash of each, separated by single
// spaces.
func (c Call) AppendLine(b []byte) []byte {
	b = append(b, c.Kind...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(c.Hashes)), 10)
	for _, h := range c.Hashes {
		b = append(b, ' ')
		b = append(b, h...)
	}
	return append(b, '\n')
}

// ReadCalls reads the file that EMBEDSIDECAR_PLUGIN_CALLS names; plugins may be appending to it. A missing file has no
// calls. An incomplete last line is skipped.
func ReadCalls(path string) ([]Call, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var calls []Call
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return nil, err
		}
		call, err := parseLine(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("read calls: %s line %d: %w", path, n, err)
		}
		calls = append(calls, call)
	}
}

func parseLine(line string) (Call, error) {
	words := strings.Split(line, " ")
	if len(words) < 2 {
		return Call{}, errors.New("want kind, count and hashes")
	}
	count, err := strconv.Atoi(words[1])
	if err != nil {
		return Call{}, err
	}
	if count != len(words)-2 {
		return Call{}, fmt.Errorf("says %d texts and names %d", count, len(words)-2)
	}
	return Call{Kind: words[0], Hashes: words[2:]}, nil
}

// Counts returns how often each text was embedded, by hash, as document or query.
func Counts(calls []Call) map[string]int {
	counts := map[string]int{}
	for _, c := range calls {
		for _, h := range c.Hashes {
			counts[h]++
		}
	}
	return counts
}

// Sent returns the number of texts in a file of calls, except some texts, such as a host's canaries.
func Sent(path string, except []string) (n int, err error) {
	counts, err := SentEach(path, except)
	for _, times := range counts {
		n += times
	}
	return n, err
}

// SentEach is Sent, by the hash of each text.
func SentEach(path string, except []string) (map[string]int, error) {
	calls, err := ReadCalls(path)
	if err != nil {
		return nil, err
	}
	counts := Counts(calls)
	for _, text := range except {
		delete(counts, Hash(text))
	}
	return counts, nil
}

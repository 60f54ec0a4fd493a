// Package canary detects leaked secrets and texts. Passwords of test servers and texts of rows contain a unique word.
// All output, logs and answers of programs under test are searched for it, and a test binary fails at its end if it was
// found.
package canary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The words. They have only letters and digits, so that quoting and escaping do not change them.
const (
	Secret = "canarysecret6f1d" // in every password that testenv makes
	Text   = "canarytext9b3e"   // in texts of the workload's rows
)

// cage records findings, one per source, and how much was searched.
type cage struct {
	mu      sync.Mutex
	found   map[string]string
	outputs int
	bytes   int64
}

var all cage

// Search searches an output of a named source. It reports whether the output is clean.
func Search(source string, output []byte) bool { return all.search(source, output) }

// SearchSecrets is Search for outputs that may contain texts of rows, such as search results.
func SearchSecrets(source string, output []byte) bool {
	return all.search(source, bytes.ReplaceAll(output, []byte(Text), nil))
}

func (c *cage) search(source string, output []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outputs++
	c.bytes += int64(len(output))
	for _, word := range []string{Secret, Text} {
		at := bytes.Index(output, []byte(word))
		if at < 0 {
			continue
		}
		const around = 200
		if c.found == nil {
			c.found = map[string]string{}
		}
		c.found[source] = fmt.Sprintf("%s in the output of %s: ...%s...", word, source,
			output[max(0, at-around):min(len(output), at+len(word)+around)])
		return false
	}
	return true
}

// Tell writes the number of searched outputs, their bytes and the number of findings to the folder
// EMBEDSIDECAR_TEST_CANARY, if that is set. make test adds them up.
func Tell() error {
	folder := os.Getenv("EMBEDSIDECAR_TEST_CANARY")
	if folder == "" {
		return nil
	}
	home, err := os.Getwd() // for a test binary, the folder of its package
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	line := fmt.Sprintf("%d %d %d %s\n", all.outputs, all.bytes, len(all.found), home)
	return os.WriteFile(filepath.Join(folder, strings.ReplaceAll(strings.Trim(home, "/"), "/", "_")), []byte(line), 0o600)
}

// Found returns an error that lists all findings; nil: none.
func Found() error { return all.err() }

func (c *cage) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) == 0 {
		return nil
	}
	var b bytes.Buffer
	for _, line := range c.found {
		fmt.Fprintf(&b, "\n  %s", line)
	}
	return fmt.Errorf("secrets or texts were found in output:%s", b.String())
}

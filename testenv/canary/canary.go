// Package canary finds what no output may hold. Passwords of test servers and texts of rows carry a word that occurs
// nowhere else; what programs under test print, log or answer is searched for it, and a test binary in whose outputs
// it was found fails at its end.
package canary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The words. Both are letters and digits, so that no quoting or escaping changes them.
const (
	Secret = "canarysecret6f1d" // in every password that testenv makes
	Text   = "canarytext9b3e"   // among the words of the workload's rows
)

// cage holds what was found, once for each source, and how much was searched.
type cage struct {
	mu      sync.Mutex
	found   map[string]string
	outputs int
	bytes   int64
}

var all cage

// Search looks at an output, of a source to be named if it holds one of the words. It reports whether the output is
// clean.
func Search(source string, output []byte) bool { return all.search(source, output) }

// SearchSecrets is Search for outputs that may hold the texts of rows, as those of searches do.
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

// Tell writes into the folder that EMBEDSIDECAR_TEST_CANARY names, if it names one, how many outputs this test binary
// has searched, their bytes, and in how many something was found. make test adds these up.
func Tell() error {
	folder := os.Getenv("EMBEDSIDECAR_TEST_CANARY")
	if folder == "" {
		return nil
	}
	home, err := os.Getwd() // of a test binary the folder of its package
	if err != nil {
		return err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	line := fmt.Sprintf("%d %d %d %s\n", all.outputs, all.bytes, len(all.found), home)
	return os.WriteFile(filepath.Join(folder, strings.ReplaceAll(strings.Trim(home, "/"), "/", "_")), []byte(line), 0o600)
}

// Found returns an error that tells every output in which a word was found; nil: none.
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
	return fmt.Errorf("what no output may hold was found:%s", b.String())
}

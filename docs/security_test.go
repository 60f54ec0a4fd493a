package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unproven is what needs no test: advice, and what PostgreSQL and operating systems do.
var unproven = []string{
	"Who must trust whom, and what each may do. The tests in brackets check the sentences before them",
	`A trigger, a default, a constraint or an index expression runs with the privileges of the writer; a view with those
		of the reader`,
	"A role that may write the tables of the schema can do as much: members of `pg_write_all_data` may. Members of " +
		"`pg_read_all_data` may read the secret that signs hints and questions",
	"By [SQL](sql.md#pipelines) with a grant, or by HTTP with a token of the role `admin`:",
	`A plugin is a program that runs as the sidecar's user. Its author, and everyone who may write its file, may do what
		that user may: read models, key files and the folder of plugins, look into other plugins, and see every text of its
		pipelines. Pin it (` + "`plugins register`" + `), and run the sidecar as a user that owns nothing else.
		Plugins that must not see each other need separate sidecars, each with a user or a container. No plugin gets:`,
	"This does not hold for a sidecar that runs as root",
	"This does not hold for scripts, whose interpreter opens the path again: protect the file and its folder",
	"A malicious plugin can still leak them: it has the network",
	"[searching](search.md#who-sees-what) explains the limits of a token",
	"If you do not trust every login, revoke the privilege. In the database, as a superuser:",
	"Keep the password of `embedsidecar_stream` separate (`--stream-url-file`), and let `pg_hba.conf` admit it from the " +
		"sidecar's address only",
}

// TestSecurity_EachSentenceHasItsTest: the tests that docs/security.md names in brackets are there, and each
// sentence stands before one of them.
func TestSecurity_EachSentenceHasItsTest(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range declared.FindAllStringSubmatch(read(t, path), -1) {
			there[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "security.md")
	named := regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(page, -1)
	const fewest = 15
	if len(named) < fewest {
		t.Errorf("the page names %d tests, want %d at least", len(named), fewest)
	}
	for _, name := range named {
		if !there[name] {
			t.Errorf("there is no test %s", name)
		}
	}
	page = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "")
	page = regexp.MustCompile(`\n(- |\| )`).ReplaceAllString(page, "\n\n$1")
	unproven := slices.Clone(unproven)
	for i, sentence := range unproven {
		unproven[i] = strings.Join(strings.Fields(sentence), " ")
	}
	for block := range strings.SplitSeq(page, "\n\n") {
		block = strings.Join(strings.Fields(block), " ")
		if strings.HasPrefix(block, "#") || strings.HasPrefix(block, "| role |") || strings.HasPrefix(block, "| --- |") {
			continue
		}
		parts := regexp.MustCompile(`\[Test[^]]*\]`).Split(block, -1)
		rest := strings.Trim(parts[len(parts)-1], " .;|-")
		if at := slices.Index(unproven, rest); at >= 0 {
			unproven = slices.Delete(unproven, at, at+1)
		} else if rest != "" {
			t.Errorf("nothing shows: %s", rest)
		}
	}
	for _, sentence := range unproven {
		t.Errorf("the page does not say: %s", sentence)
	}
	titles := map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^## .*$`).FindAllString(page, -1) {
		if who := strings.TrimSuffix(title, "'s author"); titles[who] {
			t.Errorf("the page tells twice of %s", title)
		} else {
			titles[who] = true
		}
	}
}

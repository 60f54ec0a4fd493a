package output

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUseColor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		flag     string
		environ  []string
		terminal bool
		want     bool
	}{
		{"", nil, true, true},
		{"", nil, false, false},
		{"auto", nil, true, true},
		{"always", []string{"NO_COLOR=1"}, false, true},
		{"never", nil, true, false},
		{"", []string{"NO_COLOR=1"}, true, false},
		{"", []string{"NO_COLOR="}, true, true},
		{"", []string{"TERM=dumb"}, true, false},
	} {
		if got := UseColor(test.flag, test.environ, test.terminal); got != test.want {
			t.Errorf("UseColor(%q, %q, %v) = %v", test.flag, test.environ, test.terminal, got)
		}
	}
}

func TestIsTerminal_NotOfFilesAndBuffers(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if IsTerminal(f) || IsTerminal(&strings.Builder{}) {
		t.Error("a file or a buffer is taken for a terminal")
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("twelve signs ", 20))
	lines := strings.Split(Fill(text, 8), "\n")
	for i, line := range lines {
		if i > 0 && !strings.HasPrefix(line, strings.Repeat(" ", 8)+"t") && !strings.HasPrefix(line, strings.Repeat(" ", 8)+"s") {
			t.Errorf("line %d is not indented: %q", i, line)
		}
		if len(line) > 110 || strings.HasSuffix(line, " ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if len(lines) < 3 || strings.Join(strings.Fields(strings.Join(lines, " ")), " ") != text {
		t.Errorf("%q", lines)
	}
}

func TestBars_NameWhatIsLarge(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	grow, finished := Bars(&b, false)
	const large = 1 << 20
	grow("small", 10, 10)
	grow("model", large/2, large)
	grow("model", large, large)
	grow("broken", large/2, large)
	finished()
	if got := b.String(); !strings.Contains(got, "model") || !strings.Contains(got, "broken") ||
		strings.Contains(got, "small") {
		t.Errorf("%q", got)
	}
}

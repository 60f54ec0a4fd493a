package manifest

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestManifests_AreWhole checks what the program assumes of manifests.
func TestManifests_AreWhole(t *testing.T) {
	t.Parallel()
	defaults, prefixes := 0, map[string]bool{}
	for _, m := range All() {
		if m.Default {
			defaults++
		}
		if m.Model.Kind == Folder && len(m.Model.Encoders) == 0 && !m.Default {
			t.Errorf("%s takes folders, and nothing tells which", m.Name)
		}
		if !slices.Contains([]Kind{Either, Folder, Name}, m.Model.Kind) {
			t.Errorf("%s: kind %q", m.Name, m.Model.Kind)
		}
		// A prefix must be the plugin's name.
		if m.Prefix != "" && (m.Prefix != strings.ToUpper(m.Name)+"_" || prefixes[m.Prefix]) {
			t.Errorf("%s: the prefix %q is not that of its name, or another's, too", m.Name, m.Prefix)
		}
		prefixes[m.Prefix] = true
		named := slices.Clone(m.Governs)
		for _, name := range []string{m.ChosenBy, m.CallTimeout} {
			if name != "" {
				named = append(named, name)
			}
		}
		if m.Key != nil {
			named = append(named, m.Key.File, m.Key.Env)
		}
		for _, name := range named {
			if m.VariableOf(name) == "" {
				t.Errorf("%s: there is no setting %q", m.Name, name)
			}
		}
		for i, s := range m.Settings {
			if slices.ContainsFunc(m.Settings[:i], func(other Setting) bool { return other.Name == s.Name }) {
				t.Errorf("%s: %s is there twice", m.Name, s.Name)
			}
			if slices.Contains([]string{"name", "plugin", "path", "sha256", "threads"}, s.Name) {
				t.Errorf("%s: %s is a setting of every model", m.Name, s.Name)
			}
			if (s.Type == Choice) != (len(s.Choices) > 0) || (s.Type == Number || s.Type == Words) != (s.Most > 0) ||
				!slices.Contains([]Type{Number, Choice, Bool, Words, Text, File, List, JSON, Variable}, s.Type) {
				t.Errorf("%s: %s is of type %q, with %v and at most %d", m.Name, s.Name, s.Type, s.Choices, s.Most)
			}
		}
	}
	if defaults != 1 || OfFolders() != Default() {
		t.Errorf("%d plugins are the default, and %s takes folders: want one that does both", defaults, OfFolders().Name)
	}
}

func TestFor_APluginWithoutAManifestNeedsNothing(t *testing.T) {
	t.Parallel()
	m := For("toy")
	if Of("toy") != nil || m.Name != "toy" || m.Library != nil || m.Model.Kind != Either || m.Model.Default != "" ||
		m.VariableOf("dims") != "DIMS" {
		t.Errorf("got %+v", m)
	}
}

func TestParse_NamesTheFileThatIsWrong(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"toy.yaml": "name: other", "key.yaml": "name: key\nunheard: of", "no.yaml": "[",
	} {
		if _, err := parse(fstest.MapFS{name: {Data: []byte(content)}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

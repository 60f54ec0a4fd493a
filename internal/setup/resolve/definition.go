package resolve

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// A definition is what somebody configures of a pipeline and may configure otherwise later. Each that was ever
// applied has a number, the version at which it was applied last: so a sidecar that starts with an older one, as in a
// rolling deployment, is known to be older, and does not turn the newer one back.

// Digest tells two definitions apart.
func Digest(spec pipeline.Spec) string {
	parts := []any{
		spec.Name, append([]string{}, spec.Columns...), spec.Text, spec.Filter, spec.Chunking, spec.Priority, PluginOf(spec),
		spec.Model,
	}
	if spec.Active != "" { // what works always has the digest that it had before there were hours
		parts = append(parts, spec.Active)
	}
	if spec.Ignore != "" {
		parts = append(parts, catalog.IgnoreWord, spec.Ignore)
	}
	if len(spec.Joins) > 0 {
		parts = append(parts, catalog.JoinsWord, spec.Joins.String())
	}
	if spec.PriorityBy != "" { // and so have those of a lane
		parts = append(parts, "priority", spec.PriorityBy)
	}
	if !spec.Budget.None() || !spec.ModelBudget.None() {
		parts = append(parts, "budget", spec.Budget, spec.ModelBudget)
	}
	if spec.MaxAttempts != 0 {
		parts = append(parts, "max_attempts", spec.MaxAttempts)
	}
	if len(spec.Labels) > 0 {
		parts = append(parts, "labels", spec.Labels)
	}
	if spec.Batch.On() {
		parts = append(parts, "batch", spec.Batch)
	}
	b, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	const enough = 16
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:enough])
}

// Differences tells what somebody has configured otherwise than the pipeline is set up, and how that is.
func Differences(configured, set pipeline.Spec) (was []string) {
	note := func(differs bool, what, before string) {
		before = cmp.Or(before, "none")
		if differs {
			was = append(was, fmt.Sprintf("%s (it was: %s)", what, before))
		}
	}
	note(configured.Name != set.Name, "name", set.Name)
	note(configured.Text != set.Text, catalog.TextWord, set.Text)
	note(configured.Filter != set.Filter, catalog.FilterWord, set.Filter)
	note(!slices.Equal(configured.Columns, set.Columns), "columns", strings.Join(set.Columns, ", "))
	note(configured.Chunking != set.Chunking, "chunking", set.Chunking.Strategy)
	note(configured.Ignore != set.Ignore, catalog.IgnoreWord, set.Ignore)
	note(configured.Joins.String() != set.Joins.String(), catalog.JoinsWord, set.Joins.String())
	note(configured.Priority != set.Priority || configured.PriorityBy != set.PriorityBy, catalog.PriorityWord,
		cmp.Or(set.PriorityBy, pipeline.LaneWords[set.Priority]))
	note(configured.Active != set.Active, "active", cmp.Or(string(set.Active), "always"))
	note(configured.Budget != set.Budget, "budget", set.Budget.String())
	note(configured.ModelBudget != set.ModelBudget, "budget of the model", set.ModelBudget.String())
	note(configured.MaxAttempts != set.MaxAttempts, "max_attempts", maxAttemptsWord(set.MaxAttempts))
	note(!maps.Equal(configured.Labels, set.Labels), "labels", set.Labels.String())
	note(configured.Batch.String() != set.Batch.String(), "batch", set.Batch.String())
	note(PluginOf(configured) != set.Plugin, "plugin", set.Plugin)
	note(configured.Model != set.Model, "model", set.Model)
	return was
}

// Difference is what is configured of a pipeline otherwise than it is set up.
type Difference struct {
	Was        string // how it is set up; "": as it is configured
	Configured int32  // version of the definition that is configured
	Now        int32  // version of the one that is set up
	Older      bool   // what is configured is known, and of before
}

// Differs compares: configured is the definition as it was written, spec the same with the names that columns have now.
func (s *Stored) Differs(configured, spec pipeline.Spec) Difference {
	version, known := s.Definitions[Digest(configured)]
	d := Difference{Was: strings.Join(Differences(spec, s.Spec), ", "), Configured: version, Now: s.DefinitionVersion}
	d.Older = d.Was != "" && known && version < d.Now
	return d
}

// CurrentDigest returns the digest of the definition that is set up; "": it is of before digests were kept.
func (s *Stored) CurrentDigest() string {
	for digest, version := range s.Definitions {
		if version == s.DefinitionVersion {
			return digest
		}
	}
	return ""
}

// Newer says that what is set up is newer.
func (d Difference) Newer() string {
	return fmt.Sprintf("is configured here as in version %d of its definition, and is set up as in version %d, which is newer", d.Configured, d.Now)
}

// WayToNewer is what to do about a newer definition.
const WayToNewer = "deploy the newer configuration here, or go back to this one with embedsidecar init"

// AsSetUp is a configured pipeline with the definition that is set up.
func (s *Stored) AsSetUp(configured pipeline.Spec) pipeline.Spec {
	spec := configured
	spec.Name, spec.Columns, spec.Text, spec.Filter, spec.Chunking = s.Name, s.Columns, s.Text,
		s.Filter, s.Chunking
	spec.Priority, spec.Active, spec.Plugin, spec.Model = s.Priority, s.Active, s.Plugin, s.Model
	spec.PriorityBy, spec.Ignore, spec.Joins = s.PriorityBy, s.Ignore, s.Joins
	spec.Budget, spec.ModelBudget, spec.Batch = s.Budget, s.ModelBudget, s.Batch
	spec.MaxAttempts, spec.Labels = s.MaxAttempts, s.Labels
	return spec
}

// NextDefinitions returns the versions of the definitions of a pipeline that is written down again, and the number of
// the one it has then.
func (s *Stored) NextDefinitions(f *Findings) (versions map[string]int32, now int32) {
	const most = 50
	versions, now = maps.Clone(s.Definitions), s.DefinitionVersion
	if versions == nil {
		versions = map[string]int32{}
	}
	if len(Differences(f.Pipeline.Spec, s.Spec)) > 0 {
		versions[Digest(s.Written)] = now // what was set up before digests were kept, or under other names of columns
		now++
	}
	versions[f.Digest] = now
	for len(versions) > most {
		oldest := now
		for _, v := range versions {
			oldest = min(oldest, v)
		}
		maps.DeleteFunc(versions, func(_ string, v int32) bool { return v == oldest })
	}
	return versions, now
}

// maxAttemptsWord is a number of attempts as configurations spell it; "": none is set.
func maxAttemptsWord(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// SameModel reports whether two pipelines name the same model.
func SameModel(a, b pipeline.Spec) bool { return a.Model == b.Model && PluginOf(a) == PluginOf(b) }

// ModelOf is what people call the model of a pipeline: that of a plugin goes by the plugin's name where none is named.
func ModelOf(s pipeline.Spec) string { return cmp.Or(s.Model, PluginOf(s)) }

// PluginOf returns the plugin of a pipeline, or the one that is meant where none is named.
func PluginOf(spec pipeline.Spec) string {
	if spec.Plugin == "" {
		return manifest.Default().Name
	}
	return spec.Plugin
}

// Recipe is what the vectors of a generation are made of, besides the model, and how they are stored. Filter and ignore
// are none of it: they say which rows have a vector, and when it is made.
const Recipe = "text, chunking or type"

// SameRecipe compares recipes as they are written; types are compared by HasRecipe.
func SameRecipe(a, b pipeline.Spec) bool {
	return a.Text == b.Text && slices.Equal(a.Columns, b.Columns) && a.Joins.String() == b.Joins.String() &&
		a.Chunking == b.Chunking
}

// WithRecipe is a pipeline with the recipe of another. Its destination has the type that it has.
func WithRecipe(spec, of pipeline.Spec) pipeline.Spec {
	spec.Text, spec.Columns, spec.Joins, spec.Chunking, spec.IntoType = of.Text, of.Columns, of.Joins, of.Chunking, ""
	return spec
}

// HasRecipe reports whether the pipeline is set up with the recipe of a configured one. Where that names no type any
// will do; and where the vectors are gone who looks at the destination tells of it.
func (s *Stored) HasRecipe(configured pipeline.Spec) bool {
	return SameRecipe(configured, s.Spec) &&
		(configured.IntoType == "" || s.Stored == "" || s.Stored == configured.IntoType)
}

// BesideOf returns the other generation of a pipeline, with the names that columns have now, or nil.
func (s *Stored) BesideOf(all []Stored) *Stored {
	for i := range all {
		if all[i].Beside == s.ID {
			return all[i].Current()
		}
	}
	return nil
}

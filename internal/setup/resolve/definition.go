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

// A definition is the changeable part of a pipeline's configuration. Each one that was ever applied has a number, the
// version at which it was last applied. So when a sidecar starts with an older definition, as in a rolling deployment,
// it is recognized as older and does not revert the newer one.

// Digest identifies a definition.
func Digest(spec pipeline.Spec) string {
	parts := []any{
		spec.Name, append([]string{}, spec.Columns...), spec.Text, spec.Filter, spec.Chunking, spec.Priority, PluginOf(spec),
		spec.Model,
	}
	if spec.Active != "" { // without hours, the digest stays what it was before they existed
		parts = append(parts, spec.Active)
	}
	if spec.Ignore != "" {
		parts = append(parts, catalog.IgnoreWord, spec.Ignore)
	}
	if len(spec.Joins) > 0 {
		parts = append(parts, catalog.JoinsWord, spec.Joins.String())
	}
	if spec.PriorityBy != "" { // likewise without a priority expression
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
		panic(err) // only strings and numbers
	}
	const enough = 16
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:enough])
}

// Differences describes how a pipeline is set up where its configuration differs.
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

// Difference compares a pipeline's configuration with how it is set up.
type Difference struct {
	Was        string // how it is set up; "": as configured
	Configured int32  // version of the configured definition
	Now        int32  // version of the definition that is set up
	Older      bool   // the configured definition is an earlier version
}

// Differs compares: configured is the definition as written, spec the same with the current names of columns.
func (s *Stored) Differs(configured, spec pipeline.Spec) Difference {
	version, known := s.Definitions[Digest(configured)]
	d := Difference{Was: strings.Join(Differences(spec, s.Spec), ", "), Configured: version, Now: s.DefinitionVersion}
	d.Older = d.Was != "" && known && version < d.Now
	return d
}

// CurrentDigest returns the digest of the definition that is set up; "": it is older than digests.
func (s *Stored) CurrentDigest() string {
	for digest, version := range s.Definitions {
		if version == s.DefinitionVersion {
			return digest
		}
	}
	return ""
}

// Newer is the message that the definition that is set up is newer.
func (d Difference) Newer() string {
	return fmt.Sprintf("is configured here as in version %d of its definition, and is set up as in version %d, which is newer", d.Configured, d.Now)
}

// WayToNewer is the hint about a newer definition.
const WayToNewer = "deploy the newer configuration here, or go back to this one with embedsidecar init"

// AsSetUp returns a configured pipeline with the definition that is set up.
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

// NextDefinitions returns the versions of a pipeline's definitions after an update of its row, and the version it then
// has.
func (s *Stored) NextDefinitions(f *Findings) (versions map[string]int32, now int32) {
	const most = 50
	versions, now = maps.Clone(s.Definitions), s.DefinitionVersion
	if versions == nil {
		versions = map[string]int32{}
	}
	if len(Differences(f.Pipeline.Spec, s.Spec)) > 0 {
		versions[Digest(s.Written)] = now // was set up before digests were kept, or with other names of columns
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

// maxAttemptsWord formats a number of attempts as in a configuration; "": not set.
func maxAttemptsWord(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// SameModel reports whether two pipelines name the same model.
func SameModel(a, b pipeline.Spec) bool { return a.Model == b.Model && PluginOf(a) == PluginOf(b) }

// ModelOf returns the model's name for messages; without one, the plugin's name.
func ModelOf(s pipeline.Spec) string { return cmp.Or(s.Model, PluginOf(s)) }

// PluginOf returns the plugin of a pipeline, or the default plugin.
func PluginOf(spec pipeline.Spec) string { return cmp.Or(spec.Plugin, manifest.Default().Name) }

// Recipe is what the vectors of a generation are made of, besides the model, and how they are stored. It excludes
// filter and ignore, which determine the rows that have a vector, and when it is made.
const Recipe = "text, chunking or type"

// SameRecipe compares recipes as written, without the type: HasRecipe compares it.
func SameRecipe(a, b pipeline.Spec) bool {
	return a.Text == b.Text && slices.Equal(a.Columns, b.Columns) && a.Joins.String() == b.Joins.String() &&
		a.Chunking == b.Chunking
}

// WithRecipe returns spec with the recipe of another pipeline. Its destination keeps its type.
func WithRecipe(spec, of pipeline.Spec) pipeline.Spec {
	spec.Text, spec.Columns, spec.Joins, spec.Chunking, spec.IntoType = of.Text, of.Columns, of.Joins, of.Chunking, ""
	return spec
}

// HasRecipe reports whether the pipeline is set up with the recipe of a configured one. A configuration without a type
// matches any. A missing destination is reported elsewhere.
func (s *Stored) HasRecipe(configured pipeline.Spec) bool {
	return SameRecipe(configured, s.Spec) &&
		(configured.IntoType == "" || s.Stored == "" || s.Stored == configured.IntoType)
}

// BesideOf returns the other generation of a pipeline, with the current names of columns, or nil.
func (s *Stored) BesideOf(all []Stored) *Stored {
	for i := range all {
		if all[i].BesideID == s.ID {
			return all[i].Current()
		}
	}
	return nil
}

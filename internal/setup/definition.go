package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// A definition is what somebody configures of a pipeline and may configure otherwise later. Each that was ever
// applied has a number, the version at which it was applied last: so a sidecar that starts with an older one, as in a
// rolling deployment, is known to be older, and does not turn the newer one back.

// digest tells two definitions apart.
func digest(spec pipeline.Spec) string {
	b, err := json.Marshal([]any{
		spec.Name, append([]string{}, spec.Columns...), spec.Text, spec.Filter, spec.Chunking, spec.Priority, pluginOf(spec),
		spec.Model,
	})
	if err != nil {
		panic(err) // strings and numbers alone
	}
	const enough = 16
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:enough])
}

// definedAs tells what somebody has configured otherwise than the pipeline is set up, and how that is.
func definedAs(spec pipeline.Spec, s *storedPipeline) (was []string) {
	note := func(differs bool, what, before string) {
		if before == "" {
			before = "none"
		}
		if differs {
			was = append(was, fmt.Sprintf("%s (it was: %s)", what, before))
		}
	}
	note(spec.Name != s.Name, "name", s.Name)
	note(spec.Text != s.TextExpression, textWord, s.TextExpression)
	note(spec.Filter != s.FilterExpression, filterWord, s.FilterExpression)
	note(!slices.Equal(spec.Columns, s.SourceColumns), "columns", strings.Join(s.SourceColumns, ", "))
	note(spec.Chunking != s.Chunking, "chunking", s.Chunking.Strategy)
	note(spec.Priority != s.Lane, "priority", laneWord(s.Lane))
	note(pluginOf(spec) != s.Plugin, "plugin", s.Plugin)
	note(spec.Model != s.Model, "model", s.Model)
	return was
}

// difference is what is configured of a pipeline otherwise than it is set up.
type difference struct {
	was        string // how it is set up; "": as it is configured
	configured int32  // version of the definition that is configured
	now        int32  // version of the one that is set up
	older      bool   // what is configured is known, and of before
}

// differs compares: configured is the definition as it was written, spec the same with the names that columns have now.
func (s *storedPipeline) differs(configured, spec pipeline.Spec) difference {
	version, known := s.Definitions[digest(configured)]
	d := difference{was: strings.Join(definedAs(spec, s), ", "), configured: version, now: s.DefinitionVersion}
	d.older = d.was != "" && known && version < d.now
	return d
}

// newer says that what is set up is newer.
func (d difference) newer() string {
	return fmt.Sprintf("is configured here as in version %d of its definition, and is set up as in version %d, which is newer", d.configured, d.now)
}

const wayToNewer = "give this sidecar the newer configuration, or go back to this one by hand: embedsidecar init"

// keep reports whether a pipeline stays as it is set up though it is configured otherwise, and says why. Who asks for
// a change by hand may go back to an older definition, and is told so.
func (in *initializer) keep(configured, spec pipeline.Spec, s *storedPipeline) (kept bool, warning string) {
	d := s.differs(configured, spec)
	switch {
	case d.was == "":
		return false, ""
	case in.o.NoChange:
		return true, fmt.Sprintf("pipeline %q is set up otherwise than it is configured here, and left as it is set up (--no-change): %s", spec.Name, d.was)
	case d.older && in.o.Starting:
		return true, fmt.Sprintf("pipeline %q %s: it is left as it is set up: %s; %s", spec.Name, d.newer(), d.was,
			wayToNewer)
	case d.older:
		return false, fmt.Sprintf("pipeline %q goes back to version %d of its definition, as version %d: %s; a sidecar that starts with the newer configuration does not change that", spec.Name, d.configured, d.now+1, d.was)
	}
	return false, fmt.Sprintf("pipeline %q was set up otherwise, and is changed to what is configured here, as version %d of its definition: %s; "+
		"a sidecar that starts with the configuration of before leaves it so: give all of them this one", spec.Name, d.now+1,
		d.was)
}

// asSetUp is a configured pipeline with the definition that is set up.
func (s *storedPipeline) asSetUp(configured pipeline.Spec) pipeline.Spec {
	spec := configured
	spec.Name, spec.Columns, spec.Text, spec.Filter, spec.Chunking = s.Name, s.SourceColumns, s.TextExpression,
		s.FilterExpression, s.Chunking
	spec.Priority, spec.Plugin, spec.Model = s.Lane, s.Plugin, s.Model
	return spec
}

// definitions returns the versions of the definitions of a pipeline that is written down anew, and the number of the
// one it has then.
func (s *storedPipeline) definitions(f *findings) (versions map[string]int32, now int32) {
	const most = 50
	versions, now = maps.Clone(s.Definitions), s.DefinitionVersion
	if versions == nil {
		versions = map[string]int32{}
	}
	if len(definedAs(f.pipeline.Spec, s)) > 0 {
		versions[digest(s.written)] = now // what was set up before digests were kept, or under other names of columns
		now++
	}
	versions[f.digest] = now
	for len(versions) > most {
		oldest := now
		for _, v := range versions {
			oldest = min(oldest, v)
		}
		maps.DeleteFunc(versions, func(_ string, v int32) bool { return v == oldest })
	}
	return versions, now
}

// laneWord is a lane as configurations spell it.
func laneWord(lane pipeline.Lane) string {
	return [...]string{"low", "normal", "high", "urgent"}[lane]
}

func pluginOf(spec pipeline.Spec) string {
	if spec.Plugin == "" {
		return defaultPlugin
	}
	return spec.Plugin
}

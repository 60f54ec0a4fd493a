package resolve

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Stored is a row of embedsidecar.pipeline: the pipeline as it was set up, with only the stored facts about its table,
// key and destination.
type Stored struct {
	pipeline.Pipeline

	KeyColumns []string
	Functions  []string          // that text and filter call and users may replace
	Renamed    map[string]string // renamed columns of its table: the new name by the old one
	// the generated columns are computed from the same columns as when text and filter were inspected
	AsMade            bool
	DestinationMoved  bool // the embedding table was renamed or moved
	Adopting          bool // its vectors are being adopted: it stays paused
	SlotName          string
	Published         bool
	DefinitionVersion int32
	Definitions       map[string]int32 // the version at which each was last applied, by its digest

	Written pipeline.Spec `db:"-"`
	Moved   bool          `db:"-"` // some of its names differ from the stored ones
}

// ReadStored returns the stored pipelines of all slots.
func ReadStored(ctx context.Context, q database.Querier) ([]Stored, error) {
	return readStored(ctx, q, nil, nil)
}

// ReadStoredOf returns the stored pipelines of a slot.
func ReadStoredOf(ctx context.Context, q database.Querier, slot string) ([]Stored, error) {
	return readStored(ctx, q, &slot, nil)
}

func readStored(ctx context.Context, q database.Querier, slot *string, only []int32) ([]Stored, error) {
	stored, err := database.Collect(ctx, q, "stored_pipelines", pgx.RowToStructByNameLax[Stored],
		pgx.StrictNamedArgs{"slot": slot, "only": only})
	if err != nil {
		return nil, fmt.Errorf("read pipelines: %w", err)
	}
	for i := range stored {
		stored[i].Written = stored[i].Spec
		stored[i].Jobs = stored[i].Jobs || stored[i].Batch.On()
	}
	return stored, nil
}

// Current returns the pipeline's row with the current names of its table's columns. Names in users' expressions stay:
// users must change them.
func (s *Stored) Current() *Stored {
	now := *s
	for _, list := range []*[]string{&now.Columns, &now.KeyColumns, &now.Watched} {
		*list = slices.Clone(*list)
		for i, name := range *list {
			(*list)[i] = s.nameNow(name)
			now.Moved = now.Moved || (*list)[i] != name
		}
	}
	now.Joins = s.Joins.Clone()
	for i := range now.Joins {
		for n := range now.Joins[i].On {
			of := &now.Joins[i].On[n].Of
			now.Moved = now.Moved || s.nameNow(*of) != *of
			*of = s.nameNow(*of)
		}
	}
	now.IntoColumn = s.nameNow(s.IntoColumn)
	now.Moved = now.Moved || now.IntoColumn != s.IntoColumn
	return &now
}

// nameNow returns the current name of a column.
func (s *Stored) nameNow(name string) string {
	if now, ok := s.Renamed[name]; ok {
		return now
	}
	return name
}

// columnsOfText returns the columns of the default text, or none if the user wrote the text.
func columnsOfText(s *Stored) []string {
	if s.Text != "" {
		return nil
	}
	return s.Columns
}

// Follow replaces former names of columns in a configuration by their current names.
func (s *Stored) Follow(spec pipeline.Spec, t *catalog.Table) (now pipeline.Spec, warnings []string) {
	name := func(old string) string {
		if _, there := t.Column(old); there || s.nameNow(old) == old {
			return old
		}
		warnings = append(warnings, fmt.Sprintf("column %q of %s is now called %q: name it so in the configuration", old,
			t.Quoted(), s.nameNow(old)))
		return s.nameNow(old)
	}
	spec.Columns = slices.Clone(spec.Columns)
	for i, c := range spec.Columns {
		spec.Columns[i] = name(c)
	}
	spec.Joins = spec.Joins.Clone()
	for i := range spec.Joins {
		for n := range spec.Joins[i].On {
			spec.Joins[i].On[n].Of = name(spec.Joins[i].On[n].Of)
		}
	}
	if spec.InSource() {
		spec.IntoColumn = name(spec.IntoColumn)
	}
	return spec, warnings
}

// Sharing returns the stored pipeline with another name and the same destination, or nil.
func Sharing(spec pipeline.Spec, all []Stored) *Stored {
	for i := range all {
		if all[i].Name != spec.Name && all[i].DestinationName() == spec.DestinationName() {
			return &all[i]
		}
	}
	return nil
}

// RenamedTo is the hint about a configuration with a table's former name.
func RenamedTo(now string) []string {
	return []string{"the table is now called " + now + ": name it so in the configuration"}
}

// OnlyRenamed reports whether two pipelines differ only in name. The caller compares their keys.
func OnlyRenamed(p *pipeline.Pipeline, fingerprint string, old *pipeline.Pipeline) bool {
	return p.OID == old.OID && p.DestinationName() == old.DestinationName() && fingerprint == old.Fingerprint &&
		SameRecipe(p.Spec, old.Spec) && p.Filter == old.Filter && p.Ignore == old.Ignore && p.WatchAll == old.WatchAll &&
		slices.Equal(p.Watched, old.Watched)
}

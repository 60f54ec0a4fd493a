package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Taker decides as what configured pipelines are taken: of which row each is and, where that row has another
// definition, model or recipe, which of the two holds. It changes nothing, so a check tells what a set-up does.
type Taker struct {
	Slot       string
	Stored     []Stored       // that are set up
	Known      *catalog.Known // tables of the configured ones
	Configured func(name string) bool
	// a sidecar starts: nobody asks for a change, and an older definition is no reason for one while Held
	Starting bool
	DryRun   bool // a change that cannot be made is an error all the same
	// reports whether another sidecar is configured with the definition that a pipeline has, by its digest; nil: it is
	Held func(pipeline, digest string) bool
}

// Taken is a configured pipeline as it is taken.
type Taken struct {
	Configured  pipeline.Spec // what is written down as configured
	Spec        pipeline.Spec // with the names that columns have now, and with what stays as it is set up
	Description embed.Description
	Stored      *Stored        // its row, with the names that columns have now where it is of the table; nil: it is new
	Table       *catalog.Table // by the configured name; nil: there is none
	Sharing     *Stored        // the row of another name with the same destination, or nil
	Renamed     bool           // Stored is that one
	Either      bool           // the description is that of the vectors that are there
	Warnings    []string       // what is taken otherwise than it is configured, and why
	Differs     Difference     // of the definition that is set up
	Kept        bool           // which stays
	Refused     string         // why the change of model or recipe that is configured is not made; "": none is
	Change      *ModelChange   // to be made beside the vectors that are there; nil: none
}

// ModelChange is the change of a pipeline to a model that is new to it, or to another recipe.
type ModelChange struct {
	Pipeline string
	To       pipeline.ModelName
	Recipe   *pipeline.Spec // nil: it stays
}

// Take takes a configured pipeline, whose embedder is described. It returns *ConfigError for a change that cannot be
// made and that somebody asks for.
func (k *Taker) Take(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, d embed.Description) (t Taken, err error) {
	t = Taken{Configured: spec, Spec: spec, Description: d, Sharing: Sharing(spec, k.Stored)}
	if i := slices.IndexFunc(k.Stored, func(s Stored) bool { return s.Name == spec.Name }); i >= 0 {
		t.Stored = &k.Stored[i]
	} else if o := t.Sharing; o != nil && !k.Configured(o.Name) && o.SlotName == k.Slot {
		// One that nobody configures any more, and that leads to the same place, is this one under its old name.
		t.Stored, t.Renamed = o, true
	}
	if t.Stored == nil {
		return t, nil
	}
	if t.Stored.Beside != 0 { // it follows the one that serves, and nobody configures it
		t.Either = true
		return t, nil
	}
	t.Table, err = k.Known.TableByName(ctx, tx, spec.Schema, spec.Table)
	if _, missing := errors.AsType[*refusal.MissingError](err); err != nil && !missing {
		return t, err
	}
	if t.Table != nil && t.Table.OID == t.Stored.OID {
		t.Spec, t.Warnings = t.Stored.Follow(spec, t.Table)
		t.Stored = t.Stored.Current()
	}
	if err := k.takeGeneration(&t); err != nil {
		return t, err
	}
	t.Differs = t.Stored.Differs(t.Configured, t.Spec)
	if t.Kept = t.Differs.Older && k.stays(t.Stored); t.Kept {
		t.Configured, t.Spec = t.Stored.Written, t.Stored.AsSetUp(t.Spec)
	}
	return t, nil
}

// stays reports whether a pipeline is left as it is set up by who starts with an older definition.
func (k *Taker) stays(s *Stored) bool {
	return k.Starting && (k.Held == nil || k.Held(s.Name, s.CurrentDigest()))
}

// takeGeneration says what becomes of a pipeline that is configured with another model than serves or, where that is
// asked for, with another recipe. It goes on with what serves where the other is known: it is that of a generation
// beside it, or one of before. What is new to it is a change, for who sets up to make. Other weights under the same
// name are no change that anybody has asked for.
func (k *Taker) takeGeneration(t *Taken) error {
	s, other := t.Stored, t.Stored.BesideOf(k.Stored)
	if t.Description.Fingerprint == "" && SameModel(t.Configured, s.Spec) { // it was not asked
		t.Description, t.Either = described(s), true
	}
	model, wanted := madeSo(s, other, t.Description, nil), madeSo(s, other, t.Description, &t.Spec)
	if wanted.live || model.live && !wanted.other && !t.Spec.Beside {
		return nil
	}
	otherModel, otherRecipe := !model.live, false
	if !wanted.other && !t.Spec.Beside { // another recipe is none of a generation's
		wanted = model
	} else {
		otherRecipe = !s.HasRecipe(t.Spec)
	}
	version, before := s.Definitions[Digest(t.Configured)]
	before = before && version < s.DefinitionVersion
	switch {
	case wanted.other: // its generation is there
	case otherModel && SameModel(t.Configured, s.Spec) && !otherRecipe,
		before && !otherModel && k.stays(s): // as any older definition
		return nil
	}
	why, err := k.detour(t, other, wanted, before && otherModel, otherRecipe)
	if err != nil {
		return err
	}
	t.Warnings = append(t.Warnings, why)
	if otherRecipe {
		t.Configured, t.Spec = WithRecipe(t.Configured, s.Written), WithRecipe(t.Spec, s.Spec)
	}
	if otherModel {
		t.Configured.Plugin, t.Configured.Model = s.Plugin, s.Model
		t.Spec.Plugin, t.Spec.Model = s.Plugin, s.Model
		t.Description, t.Either = described(s), true
	}
	return nil
}

// described is the model of a pipeline, as far as it is written down.
func described(s *Stored) embed.Description {
	return embed.Description{Fingerprint: s.Fingerprint, Dims: s.Dims}
}

// detour says why a pipeline goes on with what serves, and has what is new to it changed.
func (k *Taker) detour(t *Taken, other *Stored, wanted made, before, otherRecipe bool) (why string, err error) {
	s := t.Stored
	what, serves := fmt.Sprintf("model %q", ModelOf(t.Configured)), fmt.Sprintf("model %q", ModelOf(s.Spec))
	if otherRecipe {
		what, serves = "another "+Recipe, "what is set up"
	}
	switch {
	case wanted.other && other.Served:
		return fmt.Sprintf("it is configured here with %s, and was switched to %s, which serves: name that in the "+
			"configuration, or go back: embedsidecar model rollback %s", what, serves, s.Name), nil
	case wanted.other:
		return fmt.Sprintf("it is configured here with %s, its next generation; %s serves until embedsidecar model "+
			"switch %s", what, serves, s.Name), nil
	case before:
		return fmt.Sprintf("it is configured here with %s, and was changed to %s: name that in the configuration, or "+
			"change it back: embedsidecar model change %s --to MODEL", what, serves, s.Name), nil
	}
	if err := changeable(s, other, wanted); err != nil {
		if k.Starting && !k.DryRun { // nobody has asked just now
			t.Refused = err.Error()
			return t.Refused, nil
		}
		return "", err
	}
	t.Change = &ModelChange{
		Pipeline: t.Configured.Name, To: pipeline.ModelName{Plugin: PluginOf(t.Configured), Model: t.Configured.Model},
	}
	if otherRecipe {
		recipe := t.Spec
		t.Change.Recipe = &recipe
	}
	until := "embedsidecar model switch " + s.Name
	if t.Configured.AutoSwitch {
		until = "the vectors are complete (switch: auto)"
	}
	return fmt.Sprintf("it is configured with %s, new to it, whose vectors are made beside the present ones: %s serves "+
		"until %s", what, serves, until), nil
}

// made tells which generations have the model and the recipe that are asked for.
type made struct{ live, other bool }

func madeSo(live, other *Stored, d embed.Description, recipe *pipeline.Spec) made {
	same := func(s *Stored) bool {
		return s != nil && s.Fingerprint == d.Fingerprint && (recipe == nil || s.HasRecipe(*recipe))
	}
	return made{live: same(live), other: same(other)}
}

// Changeable returns *ConfigError for a change of a pipeline, beside which other may be, that makes no sense: to the
// model that is described and, unless it is nil, to a recipe.
func Changeable(live, other *Stored, d embed.Description, recipe *pipeline.Spec) error {
	return changeable(live, other, madeSo(live, other, d, recipe))
}

func changeable(live, other *Stored, wanted made) error {
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: live.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	switch {
	case live.Beside != 0:
		return fail("it is a generation that does not serve", "name its pipeline")
	case wanted.live:
		return fail("its vectors are of this model already, and made of this text in this way")
	case other == nil, wanted.other && !other.Served:
		return nil
	case wanted.other:
		return fail("its vectors were made so before the switch, and are kept",
			"embedsidecar model rollback "+live.Name+" has them serve again")
	case other.Served:
		return fail(fmt.Sprintf("its previous generation, of model %q, is kept", ModelOf(other.Spec)),
			"take it away first: embedsidecar model drop-old "+live.Name)
	}
	return fail(fmt.Sprintf("a change to %s is under way", whatOf(other, live)),
		"end it first: embedsidecar model switch "+live.Name, "or give it up: embedsidecar model drop-old "+live.Name)
}

// whatOf says what sets a generation apart from the one that serves.
func whatOf(other, live *Stored) string {
	if SameModel(other.Spec, live.Spec) {
		return "another " + Recipe
	}
	return fmt.Sprintf("model %q", ModelOf(other.Spec))
}

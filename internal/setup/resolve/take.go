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

// Taker decides how configured pipelines are applied: which row each has and, if that row has another definition, model
// or recipe, which of the two is used. It changes nothing, so check can report what set-up will do.
type Taker struct {
	Slot       string
	Stored     []Stored
	Known      *catalog.Known // tables of the configured pipelines
	Configured func(name string) bool
	// set when a sidecar starts: no user asks for a change, and an older definition is not applied while Held
	Starting bool
	DryRun   bool // a change that cannot be made is an error even so
	// reports whether another sidecar is configured with the definition that a pipeline has, by its digest; nil: always
	Held func(pipeline, digest string) bool
}

// Taken is how a configured pipeline is applied.
type Taken struct {
	Configured  pipeline.Spec // the definition to store
	Spec        pipeline.Spec // with the current names of columns, and with the parts that stay as they are set up
	Description embed.Description
	Stored      *Stored        // its row, with the current names of columns if the table is the same; nil: new
	Table       *catalog.Table // the table with the configured name; nil: none
	Sharing     *Stored        // the row with another name and the same destination, or nil
	Renamed     bool           // Stored is Sharing
	Either      bool           // the description is that of the existing vectors
	Warnings    []string       // what is not applied as configured, and why
	Differs     Difference     // from the definition that is set up
	Kept        bool           // the definition that is set up stays
	Refused     string         // why the configured change of model or recipe is not made; "": there is none
	Change      *ModelChange   // to make beside the existing vectors; nil: none
}

// ModelChange is the change of a pipeline to a new model or another recipe.
type ModelChange struct {
	Pipeline string
	To       pipeline.ModelName
	Recipe   *pipeline.Spec // nil: unchanged
}

// Take decides about a configured pipeline, whose embedder is described. It returns *ConfigError for a requested change
// that cannot be made.
func (k *Taker) Take(ctx context.Context, tx pgx.Tx, spec pipeline.Spec, d embed.Description) (t Taken, err error) {
	t = Taken{Configured: spec, Spec: spec, Description: d, Sharing: Sharing(spec, k.Stored)}
	if i := slices.IndexFunc(k.Stored, func(s Stored) bool { return s.Name == spec.Name }); i >= 0 {
		t.Stored = &k.Stored[i]
	} else if o := t.Sharing; o != nil && !k.Configured(o.Name) && o.SlotName == k.Slot {
		// A stored pipeline that is no longer configured and has the same destination is this one under its old name.
		t.Stored, t.Renamed = o, true
	}
	if t.Stored == nil {
		return t, nil
	}
	if t.Stored.BesideID != 0 { // it follows the live generation and is not configured
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

// stays reports whether a sidecar that starts with an older definition leaves a pipeline as it is set up.
func (k *Taker) stays(s *Stored) bool {
	return k.Starting && (k.Held == nil || k.Held(s.Name, s.CurrentDigest()))
}

// takeGeneration decides about a pipeline that is configured with another model than the live one or, if that is
// requested, another recipe. If the other model or recipe is known, from the generation beside it or from an earlier
// definition, the live one stays. If it is new, it is a change for the caller to make. Other weights under the same
// name do not count as a change.
func (k *Taker) takeGeneration(t *Taken) error {
	s, other := t.Stored, t.Stored.BesideOf(k.Stored)
	if t.Description.Fingerprint == "" && SameModel(t.Configured, s.Spec) { // the model was not queried
		t.Description, t.Either = described(s), true
	}
	model, wanted := madeSo(s, other, t.Description, nil), madeSo(s, other, t.Description, &t.Spec)
	if wanted.live || model.live && !wanted.other && !t.Spec.Beside {
		return nil
	}
	otherModel, otherRecipe := !model.live, false
	if !wanted.other && !t.Spec.Beside { // another recipe does not start a generation
		wanted = model
	} else {
		otherRecipe = !s.HasRecipe(t.Spec)
	}
	version, before := s.Definitions[Digest(t.Configured)]
	before = before && version < s.DefinitionVersion
	switch {
	case wanted.other: // its generation exists
	case otherModel && SameModel(t.Configured, s.Spec) && !otherRecipe,
		before && !otherModel && k.stays(s): // like any older definition
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

// described is the stored model of a pipeline.
func described(s *Stored) embed.Description {
	return embed.Description{Fingerprint: s.Fingerprint, Dims: s.Dims}
}

// detour says why the live generation stays, and sets the change that is to be made.
func (k *Taker) detour(t *Taken, other *Stored, wanted made, before, otherRecipe bool) (why string, err error) {
	s := t.Stored
	what, serves := fmt.Sprintf("model %q", ModelOf(t.Configured)), fmt.Sprintf("model %q", ModelOf(s.Spec))
	if otherRecipe {
		what, serves = "another "+Recipe, "what is set up"
	}
	switch {
	case wanted.other && other.Served:
		return fmt.Sprintf("it is configured with %s, but was switched to %s, which is live: name that in the "+
			"configuration, or go back: embedsidecar model rollback %s", what, serves, s.Name), nil
	case wanted.other:
		return fmt.Sprintf("it is configured with %s, its next generation; %s stays live until embedsidecar model "+
			"switch %s", what, serves, s.Name), nil
	case before:
		return fmt.Sprintf("it is configured with %s, but was changed to %s: name that in the configuration, or "+
			"change it back: embedsidecar model change %s --to MODEL", what, serves, s.Name), nil
	}
	if err := changeable(s, other, wanted); err != nil {
		if k.Starting && !k.DryRun { // no user asked for it
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
	return fmt.Sprintf("it is configured with %s, whose vectors are built beside the present ones: %s stays live "+
		"until %s", what, serves, until), nil
}

// made says which generations have the requested model and recipe.
type made struct{ live, other bool }

func madeSo(live, other *Stored, d embed.Description, recipe *pipeline.Spec) made {
	same := func(s *Stored) bool {
		return s != nil && s.Fingerprint == d.Fingerprint && (recipe == nil || s.HasRecipe(*recipe))
	}
	return made{live: same(live), other: same(other)}
}

// Changeable returns *ConfigError if a change of a pipeline to the described model, and to a recipe unless it is nil,
// is not possible. other is the generation beside it, or nil.
func Changeable(live, other *Stored, d embed.Description, recipe *pipeline.Spec) error {
	return changeable(live, other, madeSo(live, other, d, recipe))
}

func changeable(live, other *Stored, wanted made) error {
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: live.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	switch {
	case live.BesideID != 0:
		return fail("it is a generation that is not in use", "name its pipeline")
	case wanted.live:
		return fail("its vectors are of this model already, and made of this text in this way")
	case other == nil, wanted.other && !other.Served:
		return nil
	case wanted.other:
		return fail("its vectors were made so before the switch, and are kept",
			"embedsidecar model rollback "+live.Name+" has them serve again")
	case other.Served:
		return fail(fmt.Sprintf("its previous generation, of model %q, is kept", ModelOf(other.Spec)),
			"drop it first: embedsidecar model drop-old "+live.Name)
	}
	return fail(fmt.Sprintf("a change to %s is under way", whatOf(other, live)),
		"end it first: embedsidecar model switch "+live.Name, "or give it up: embedsidecar model drop-old "+live.Name)
}

// whatOf describes how a generation differs from the live one.
func whatOf(other, live *Stored) string {
	if SameModel(other.Spec, live.Spec) {
		return "another " + Recipe
	}
	return fmt.Sprintf("model %q", ModelOf(other.Spec))
}

package host

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

const (
	maxModels      = 1000
	maxName        = 64
	maxModelName   = 256
	maxFingerprint = 256
	maxInt32       = 1<<31 - 1
)

// describe checks a plugin's description and returns that of the given model; "" means the only one.
func describe(resp *pluginpb.DescribeResponse, model string) (embed.Description, error) {
	wrong := func(format string, args ...any) (embed.Description, error) {
		return embed.Description{}, configuration("describe", fmt.Errorf("its description breaks the contract: "+format,
			args...))
	}
	if !printable(resp.GetName(), 1, maxName) || !printable(resp.GetVersion(), 0, maxName) {
		return wrong("name %q or version %q is empty, too long or not printable", clip(resp.GetName()),
			clip(resp.GetVersion()))
	}
	if n := len(resp.GetModels()); n < 1 || n > maxModels {
		return wrong("it offers %d models, want 1 to %d", n, maxModels)
	}
	var names []string
	var chosen *pluginpb.Model
	seen := map[string]bool{}
	for _, m := range resp.GetModels() {
		if !printable(m.GetName(), 1, maxModelName) || seen[m.GetName()] {
			return wrong("model name %q is empty, too long, not printable or occurs twice", clip(m.GetName()))
		}
		seen[m.GetName()] = true
		names = append(names, m.GetName())
		if m.GetName() == model || model == "" {
			chosen = m
		}
	}
	switch {
	case model == "" && len(names) > 1:
		return embed.Description{}, configuration("unknown_model",
			fmt.Errorf("it offers several models: choose one of %s", list(names)))
	case chosen == nil:
		return embed.Description{}, configuration("unknown_model", &UnknownModelError{Model: model, Offered: names})
	case !printable(chosen.GetFingerprint(), 1, maxFingerprint):
		return wrong("the fingerprint %q of model %q is empty, too long or not printable", clip(chosen.GetFingerprint()),
			chosen.GetName())
	case chosen.GetDims() < 1 || chosen.GetDims() > maxDims(chosen):
		return wrong("model %q has %d dims, want 1 to %d", chosen.GetName(), chosen.GetDims(), maxDims(chosen))
	case chosen.GetReranks() && (chosen.GetDims() != 1 || chosen.GetSparse()):
		return wrong("model %q is a reranker, and its dims are %d, want 1", chosen.GetName(), chosen.GetDims())
	case chosen.GetBatches() && chosen.GetReranks():
		return wrong("model %q is a reranker, and its batch jobs would make vectors", chosen.GetName())
	case max(chosen.GetMaxTokens(), chosen.GetMaxBatch(), chosen.GetMaxBatchBytes()) > maxInt32:
		return wrong("a limit of model %q is above %d", chosen.GetName(), maxInt32)
	}
	return embed.Description{
		Plugin: resp.GetName(), Version: resp.GetVersion(), Model: chosen.GetName(), Fingerprint: chosen.GetFingerprint(),
		Dims: int(chosen.GetDims()), MaxTokens: int(chosen.GetMaxTokens()), MaxBatch: int(chosen.GetMaxBatch()),
		MaxBatchBytes: int(chosen.GetMaxBatchBytes()), Deterministic: chosen.GetDeterministic(), Sparse: chosen.GetSparse(),
		Reranks:  chosen.GetReranks(),
		Batches:  chosen.GetBatches(),
		Settings: settings(chosen.GetSettings()),
	}, nil
}

// UnknownModelError says that a plugin does not offer a model.
type UnknownModelError struct {
	Model   string
	Offered []string
}

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("it does not offer model %q: choose one of %s", e.Model, list(e.Offered))
}

func maxDims(m *pluginpb.Model) uint32 {
	if m.GetSparse() {
		return pluginpb.MaxSparseDims
	}
	return pluginpb.MaxDims
}

// printable reports whether a name has an allowed length and no control characters.
func printable(s string, from, to int) bool {
	return len(s) >= from && len(s) <= to && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func clip(s string) string { return withoutTexts(s[:min(len(s), maxFingerprint)], nil) }

// list prints the first few names.
func list(names []string) string {
	const few = 10
	if len(names) > few {
		return fmt.Sprintf("%q and %d more", names[:few], len(names)-few)
	}
	return fmt.Sprintf("%q", names)
}

// settings copies the settings that a plugin describes for users, within bounds.
func settings(list []*pluginpb.Setting) (taken []embed.Setting) {
	const most, longest = 32, 1024
	short := func(text string) string {
		return strings.ToValidUTF8(text[:min(len(text), longest)], "")
	}
	for _, s := range list[:min(len(list), most)] {
		taken = append(taken, embed.Setting{
			Name: short(s.GetName()), Value: short(s.GetValue()), Source: short(s.GetSource()),
		})
	}
	return taken
}

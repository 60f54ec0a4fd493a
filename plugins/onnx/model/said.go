package model

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/embedsidecar/embedsidecar/embed"
)

// said returns what the model goes by. Nothing that is guessed is left out.
func (s *settings) said() []embed.Setting {
	list := []embed.Setting{
		{Name: settingPooling, Value: s.pooling, Source: s.from[settingPooling]},
		{Name: settingNormalize, Value: strconv.FormatBool(s.normalize), Source: s.from[settingNormalize]},
		{Name: settingMaxTokens, Value: strconv.Itoa(s.maxTokens), Source: s.from[settingMaxTokens]},
	}
	for _, kind := range []embed.Kind{embed.Document, embed.Query} {
		list = append(list, embed.Setting{
			Name: prefixSettings[kind], Value: s.prefixes[kind], Source: s.from[prefixSettings[kind]],
		})
	}
	for _, d := range s.dense {
		activation := "identity"
		if d.tanh {
			activation = "tanh"
		}
		list = append(list, embed.Setting{
			Name: "dense", Value: fmt.Sprintf("%d to %d, %s", d.in, d.out, activation), Source: d.file,
		})
	}
	for i := range list {
		list[i].Source = cmp.Or(list[i].Source, "not stated by any file")
	}
	if s.card != "" && (s.from[prefixSettings[embed.Query]] == "" || s.from[settingPooling] == "") {
		list = append(list, embed.Setting{
			Name: "card", Value: s.card, Source: "the model's card: no file of the folder states it, and it is not used",
		})
	}
	return list
}

// noPooling is the error of a model whose pooling nobody states: any guess would be wrong for some models, in silence.
func (s *settings) noPooling() error {
	hint := ""
	if s.card != "" {
		hint = "; the card of this model says: " + s.card
	}
	return fmt.Errorf("no file of the folder states how tokens are pooled (there is no modules.json): set pooling to %s, "+
		"%s or %s, as the model's card says, with `models import --pooling` or in the configuration%s", poolMean, poolFirst,
		poolLast, hint)
}

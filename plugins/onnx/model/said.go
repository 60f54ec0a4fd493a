package model

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// said returns the model's effective settings, including defaults.
func (s *settings) said() []embed.Setting {
	if s.pooling == poolRerank {
		return s.saidOfPairs()
	}
	list := []embed.Setting{
		{Name: settingPooling, Value: s.pooling, Source: s.from[settingPooling]},
		{Name: settingNormalize, Value: strconv.FormatBool(s.normalize), Source: s.from[settingNormalize]},
		{Name: settingMaxTokens, Value: strconv.Itoa(s.maxTokens), Source: s.from[settingMaxTokens]},
	}
	add := func(name, value, source string) {
		list = append(list, embed.Setting{Name: name, Value: value, Source: source})
	}
	for _, kind := range []embed.Kind{embed.Document, embed.Query} {
		add(prefixSettings[kind], s.prefixes[kind], s.from[prefixSettings[kind]])
	}
	for _, d := range s.dense {
		activation := "identity"
		if d.tanh {
			activation = "tanh"
		}
		add("dense", fmt.Sprintf("%d to %d, %s", d.in, d.out, activation), d.file)
	}
	if s.layerNorm != nil {
		add(settingLayerNorm, strconv.FormatBool(*s.layerNorm), s.from[settingLayerNorm])
	}
	if s.tasked {
		add(taskInput, fmt.Sprintf("%d for documents, %d for queries", s.tasks[embed.Document], s.tasks[embed.Query]),
			"config.json, lora_adaptations")
	}
	if s.weights != nil {
		add("queries", "a weight for each token, without the network", s.weightsFile)
	}
	list = s.saidOfMemory(list)
	for i := range list {
		list[i].Source = cmp.Or(list[i].Source, "not stated by any file")
	}
	if len(s.unused) > 0 && s.from[prefixSettings[embed.Query]] == "" {
		add("prompts", strings.Join(s.unused, ", "),
			"config_sentence_transformers.json: none of them is used; query_prefix and document_prefix set one")
	}
	adds := s.from[settingPooling] == "" || s.from[prefixSettings[embed.Query]] == "" && strings.Contains(s.card, "_prefix")
	if s.card != "" && adds {
		add("card", s.card, "the model's card; no file states it, and it is not used: models import takes it as "+
			flagsOf(s.card, s.from[settingPooling] == ""))
	}
	return list
}

// saidOfPairs returns the settings of a reranker.
func (s *settings) saidOfPairs() []embed.Setting {
	score := "sigmoid of the graph's number, between 0 and 1"
	if s.raw {
		score = "the graph's number, any"
	}
	list := s.saidOfMemory([]embed.Setting{
		{Name: settingScore, Value: score, Source: s.from[settingScore]},
		{Name: settingMaxTokens, Value: strconv.Itoa(s.maxTokens), Source: s.from[settingMaxTokens]},
	})
	for i := range list {
		list[i].Source = cmp.Or(list[i].Source, "not stated by any file")
	}
	return list
}

// saidOfMemory adds the memory of the longest text, if that is large.
func (s *settings) saidOfMemory(list []embed.Setting) []embed.Setting {
	if need := s.attention(); need >= toldMemory {
		list = append(list, embed.Setting{
			Name: "memory", Value: fmt.Sprintf("about %.1f GiB for a text of %d tokens", float64(need)/(1<<30), s.maxTokens),
			Source: "its heads; fewer max_tokens take less, and chunking divides longer texts",
		})
	}
	return list
}

// toldMemory is the least memory of a text that is reported.
const toldMemory = 256 << 20

// attention estimates the bytes of the attention matrices for the longest text: two at a time, with a number for each
// head and each pair of tokens.
func (s *settings) attention() int {
	const atATime, bytes = 2, 4
	return atATime * bytes * s.heads * s.maxTokens * s.maxTokens
}

// noPooling is the error for an unknown pooling. A guess would be silently wrong for some models.
func (s *settings) noPooling() error {
	const stated = "no file of the folder states how tokens are pooled"
	if s.card != "" { // first, because a host truncates long messages
		return fmt.Errorf("%s; its card says: %s (`models import --pooling` writes that, or the configuration says it)", stated,
			s.card)
	}
	return fmt.Errorf("%s (there is no modules.json): set pooling to %s, %s or %s, as the model's card says, with "+
		"`models import --pooling` or in the configuration", stated, poolMean, poolFirst, poolLast)
}

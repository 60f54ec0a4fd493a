package folder

import (
	"maps"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
)

// The names under which models keep the prefix of a document and of a query, the usual ones first.
var promptNames = map[embed.Kind][]string{
	embed.Document: {"document", "passage", "corpus", "search_document", "retrieval.passage"},
	embed.Query:    {"query", "search_query", "web_search_query", "retrieval.query", "s2p_query"},
}

// Prompts returns what to put before a document and before a query, and where each is stated; what nobody states is
// missing. Where none of the names is one of those, they come back as unused.
func (f *Folder) Prompts() (prefixes, from map[embed.Kind]string, unused []string, err error) {
	const name = "config_sentence_transformers.json"
	var config struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	if _, err := f.ReadJSON(name, &config); err != nil {
		return nil, nil, nil, err
	}
	prefixes, from = map[embed.Kind]string{}, map[embed.Kind]string{}
	for kind, names := range promptNames {
		if config.Default != nil {
			names = append(slices.Clip(names), *config.Default)
			if _, ok := config.Prompts[*config.Default]; !ok {
				prefixes[kind], from[kind] = "", name+", "+*config.Default
			}
		}
		for _, prompt := range names {
			if prefix, ok := config.Prompts[prompt]; ok {
				prefixes[kind], from[kind] = prefix, name+", "+prompt
				break
			}
		}
	}
	if len(from) == 0 && len(config.Prompts) > 0 {
		unused = slices.Sorted(maps.Keys(config.Prompts))
	}
	return prefixes, from, unused, nil
}

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// poolings maps sentence-transformers' names of poolings to ours.
var poolings = map[string]string{
	"mean": poolMean, "mean_tokens": poolMean, "cls": poolFirst, "cls_token": poolFirst, "lasttoken": poolLast,
	"max": poolMax, "max_tokens": poolMax, "weightedmean": poolWeighted, "weightedmean_tokens": poolWeighted,
	"mean_sqrt_len_tokens": poolRoot, "mean_sqrt_len": poolRoot,
}

// readModules reads the modules after the encoder. Without modules.json they are unknown: the graph may include them,
// or the user states them.
func (s *settings) readModules(f *folder.Folder) error {
	var modules []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	found, err := f.ReadJSON("modules.json", &modules)
	if err != nil || !found {
		return err
	}
	if len(modules) > 0 && path.Clean(modules[0].Path) != "." {
		return fmt.Errorf("modules.json: the first module is in %q, and the files of the folder's top are read", modules[0].Path)
	}
	var kinds []string
	for _, module := range modules {
		kinds = append(kinds, module.Type[strings.LastIndexByte(module.Type, '.')+1:])
	}
	if len(kinds) == 2 && kinds[1] == "SpladePooling" && (kinds[0] == "MLMTransformer" || kinds[0] == "Transformer") {
		return s.readSplade(f, path.Join(modules[1].Path, "config.json"))
	}
	layers := kinds[min(2, len(kinds)):]
	if s.normalize = len(layers) > 0 && layers[len(layers)-1] == "Normalize"; s.normalize {
		layers = layers[:len(layers)-1]
	}
	if slices.Equal(kinds, []string{"Router"}) {
		return s.readRouter(f)
	}
	if slices.Contains(kinds, "Router") || slices.Contains(kinds, "Asym") {
		return fmt.Errorf("modules.json: %s %s", strings.Join(kinds, ", "), otherNetwork)
	}
	if len(kinds) < 2 || kinds[0] != "Transformer" || kinds[1] != "Pooling" ||
		slices.ContainsFunc(layers, func(kind string) bool { return kind != "Dense" }) {
		return fmt.Errorf("modules.json: %s is not supported, only Transformer, Pooling, perhaps Dense and Normalize, "+
			"or MLMTransformer or Transformer and SpladePooling", strings.Join(kinds, ", "))
	}
	s.from[settingNormalize] = "modules.json"
	if err := s.readPooling(f, path.Join(modules[1].Path, "config.json")); err != nil {
		return err
	}
	for i := range layers {
		layer, err := readDense(f, modules[2+i].Path)
		if err != nil {
			return err
		}
		if i > 0 && s.dense[i-1].out != layer.in {
			return fmt.Errorf("%s takes %d numbers, and the layer before it gives %d", layer.file, layer.in, s.dense[i-1].out)
		}
		s.dense = append(s.dense, layer)
	}
	return nil
}

const otherNetwork = "gives queries another network than documents, which is not supported: take a model with one for " +
	"both, or one whose queries are weighed by a table (SparseStaticEmbedding)"

// readRouter reads a module with different routes: documents go through the network, and the tokens of queries are
// looked up in a table.
func (s *settings) readRouter(f *folder.Folder) error {
	const name = "router_config.json"
	var router struct {
		Types     map[string]string   `json:"types"`
		Structure map[string][]string `json:"structure"`
	}
	if found, err := f.ReadJSON(name, &router); err != nil || !found {
		return errors.Join(err, fmt.Errorf("read what becomes of queries: %s", name))
	}
	kinds := func(paths []string) (names []string) {
		for _, in := range paths {
			kind := router.Types[in]
			names = append(names, kind[strings.LastIndexByte(kind, '.')+1:])
		}
		return names
	}
	documents, queries := router.Structure["document"], router.Structure["query"]
	made := strings.TrimPrefix(strings.Join(kinds(documents), " "), "MLM")
	if len(documents) != 2 || made != "Transformer SpladePooling" ||
		!slices.Equal(kinds(queries), []string{"SparseStaticEmbedding"}) {
		return fmt.Errorf("%s: Router %s", name, otherNetwork)
	}
	if path.Clean(documents[0]) != "." {
		return fmt.Errorf("%s: the network of documents is in %q, and the files of the folder's top are read", name, documents[0])
	}
	if err := s.readSplade(f, path.Join(documents[1], "config.json")); err != nil {
		return err
	}
	return s.readQueryWeights(f, queries[0])
}

// readPooling reads the settings of the pooling module, either with one switch per pooling or with a name.
func (s *settings) readPooling(f *folder.Folder, name string) error {
	pooling := map[string]json.RawMessage{}
	if found, err := f.ReadJSON(name, &pooling); err != nil || !found {
		return errors.Join(err, fmt.Errorf("read pooling settings %s", name))
	}
	var modes []string
	if raw, ok := pooling["pooling_mode"]; ok {
		var mode string
		if json.Unmarshal(raw, &mode) == nil {
			modes = []string{mode}
		} else if err := json.Unmarshal(raw, &modes); err != nil {
			return fmt.Errorf("%s: pooling_mode is neither a name nor a list of names", name)
		}
	} else {
		for key, value := range pooling {
			if mode, ok := strings.CutPrefix(key, "pooling_mode_"); ok && string(value) == "true" {
				modes = append(modes, mode)
			}
		}
	}
	slices.Sort(modes)
	way, known := poolings[strings.Join(modes, "+")]
	if !known {
		return fmt.Errorf("%s: pooling %q is none of mean, cls, lasttoken, max, weightedmean and mean_sqrt_len", name, modes)
	}
	s.pooling, s.poolingSet, s.from[settingPooling] = way, true, name
	if string(pooling["include_prompt"]) == "false" {
		return fmt.Errorf("%s: include_prompt=false is not supported", name)
	}
	return nil
}

// readPrompts reads the prefixes of documents and queries.
func (s *settings) readPrompts(f *folder.Folder) error {
	prefixes, from, unused, err := f.Prompts()
	s.unused = unused
	for kind, source := range from {
		s.prefixes[kind], s.from[prefixSettings[kind]] = prefixes[kind], source
	}
	return err
}

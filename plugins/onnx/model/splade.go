package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/folder"
)

// spladeNumbers bounds the output of a sparse model's run, a number for each token and vocabulary word: 32 MiB.
const spladeNumbers = 8 << 20

// splade makes a sparse vector (embed.Pairs) of the masked language model's output for a text's tokens. A word's number
// is log(1 + x), where x is the word's largest output over all tokens; twice applies the logarithm twice. Words without
// a positive output are left out. With most > 0 only the most largest numbers are kept. It overwrites the first of
// rows.
func splade(rows []float32, tokens, dims, most int, twice bool) []float32 {
	largest := rows[:dims]
	for row := 1; row < tokens; row++ {
		for i, x := range rows[row*dims : (row+1)*dims] {
			if x > largest[i] || x != x { // NaN stays, for the host to detect
				largest[i] = x
			}
		}
	}
	var numbers []float32
	var places []uint32
	for i, x := range largest {
		if x <= 0 {
			continue
		}
		made := math.Log1p(float64(x))
		if twice {
			made = math.Log1p(made)
		}
		if x = float32(made); x != 0 {
			places, numbers = append(places, uint32(i)), append(numbers, x)
		}
	}
	pairs := embed.Pairs(places, numbers)
	if most > 0 && most < len(numbers) {
		pairs = largestPairs(pairs, most)
	}
	return pairs
}

// largestPairs keeps the pairs with the largest numbers; of equal ones, the first. NaN counts as the largest, so that
// the host detects it.
func largestPairs(pairs []float32, most int) []float32 {
	order := make([]int, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := pairs[a+1], pairs[b+1]
		if x != x || y != y {
			return cmp.Compare(x, y) // which puts it first
		}
		return cmp.Compare(y, x)
	})
	order = order[:most]
	slices.Sort(order)
	kept := make([]float32, 0, 2*most)
	for _, i := range order {
		kept = append(kept, pairs[i], pairs[i+1])
	}
	return kept
}

// readSplade reads the settings of the pooling of a sparse encoder.
func (s *settings) readSplade(f *folder.Folder, name string) error {
	var pooling struct {
		Strategy   *string         `json:"pooling_strategy"`
		Activation *string         `json:"activation_function"`
		Dimension  json.RawMessage `json:"word_embedding_dimension"` // redundant
	}
	if found, err := f.ReadJSON(name, &pooling); err != nil || !found {
		return errors.Join(err, fmt.Errorf("read pooling settings %s", name))
	}
	if pooling.Strategy != nil && *pooling.Strategy != "max" {
		return fmt.Errorf("%s: pooling_strategy %q is not max", name, *pooling.Strategy)
	}
	if a := pooling.Activation; a != nil && *a != "relu" && *a != "log1p_relu" {
		return fmt.Errorf("%s: activation_function %q is neither relu nor log1p_relu", name, *a)
	} else if a != nil {
		s.loggedTwice = *a == "log1p_relu"
	}
	s.pooling, s.poolingSet, s.from[settingPooling] = poolSplade, true, name
	var config struct {
		Most *int `json:"max_active_dims"`
	}
	if _, err := f.ReadJSON("config_sentence_transformers.json", &config); err != nil {
		return err
	}
	if config.Most != nil {
		s.keep = max(*config.Most, 0)
	}
	return nil
}

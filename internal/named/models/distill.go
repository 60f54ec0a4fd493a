package models

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
)

// DistillOptions say how to make a static model.
type DistillOptions struct {
	From    string // folder of the teacher model; its tokenizer is copied
	Out     string // folder of the new model
	Dims    int    // of the new vectors, at most those of the teacher
	Teacher embed.Embedder
	About   embed.Description // of the teacher
	// Try opens the finished folder before it is installed.
	Try func(ctx context.Context, folder string) error
	// Progress gets the number of tokens that have a vector.
	Progress func(done, total int)
}

// staticTokens is the token limit of a distilled model.
const staticTokens = 512

// Distill makes a static model from another: it embeds each token of the vocabulary as a text, reduces the vectors to
// their principal components, and weights rare tokens higher than common ones. The folder is installed completely or
// not at all.
func Distill(ctx context.Context, o DistillOptions) (done Info, err error) {
	vocabulary, err := readVocabulary(filepath.Join(o.From, tokenizerFile))
	if err != nil {
		return Info{}, fmt.Errorf("distill %s: %w", o.From, err)
	}
	if o.About.Sparse {
		return Info{}, fmt.Errorf("distill %s: its vectors are sparse: a static model has dense ones", o.From)
	}
	if _, err := os.Lstat(o.Out); !errors.Is(err, fs.ErrNotExist) {
		return Info{}, &ExistsError{o.Out}
	}
	if err := CheckName(filepath.Base(o.Out)); err != nil {
		return Info{}, err
	}
	if err := makeFolder(filepath.Dir(o.Out)); err != nil {
		return Info{}, fmt.Errorf("distill: %w", err)
	}
	staged, err := os.MkdirTemp(filepath.Dir(o.Out), ".distill-")
	if err != nil {
		return Info{}, fmt.Errorf("distill: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	table, err := o.table(ctx, vocabulary)
	if err != nil {
		return Info{}, fmt.Errorf("distill %s: %w", o.From, err)
	}
	made := filepath.Join(staged, filepath.Base(o.Out))
	if err := o.fill(made, table); err != nil {
		return Info{}, fmt.Errorf("distill %s: %w", o.From, err)
	}
	if o.Try != nil {
		if err := o.Try(ctx, made); err != nil {
			return Info{}, fmt.Errorf("distill %s: what was made does not work: %w", o.From, err)
		}
	}
	if err := install(made, o.Out); err != nil {
		return Info{}, err
	}
	return Describe(o.Out), nil
}

// A word is a token of a vocabulary.
type word struct {
	text string  // its text; "": none
	log  float64 // the logarithm of its frequency, up to a constant; 0: unknown
}

// readVocabulary returns the tokens of a tokenizer.json, by ID.
func readVocabulary(path string) ([]word, error) {
	var file struct {
		Model struct {
			Type  string          `json:"type"`
			Begin string          `json:"continuing_subword_prefix"`
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      int  `json:"id"`
			Special bool `json:"special"`
		} `json:"added_tokens"`
	}
	if err := readJSON(path, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", tokenizerFile, err)
	}
	var words []word
	var err error
	switch file.Model.Type {
	case "WordPiece":
		words, err = pieces(file.Model.Vocab, cmp.Or(file.Model.Begin, "##"))
	case "Unigram":
		words, err = unigrams(file.Model.Vocab)
	default:
		return nil, fmt.Errorf("its tokenizer is a %s: the plugin %s reads WordPiece and Unigram, so distill another model",
			cmp.Or(file.Model.Type, "nameless one"), "static")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	for _, added := range file.Added {
		if added.ID < 0 || added.ID > maxVocabulary {
			return nil, fmt.Errorf("%s: a token has the number %d", tokenizerFile, added.ID)
		}
		for added.ID >= len(words) {
			words = append(words, word{})
		}
		if added.Special {
			words[added.ID].text = ""
		}
	}
	return words, nil
}

// maxVocabulary is more tokens than any model has.
const maxVocabulary = 1 << 21

func pieces(raw json.RawMessage, begin string) ([]word, error) {
	var ids map[string]int
	if err := json.Unmarshal(raw, &ids); err != nil {
		return nil, err
	}
	var words []word
	for token, id := range ids {
		if id < 0 || id > maxVocabulary {
			return nil, fmt.Errorf("token %q has the number %d", token, id)
		}
		for id >= len(words) {
			words = append(words, word{})
		}
		text := strings.TrimPrefix(token, begin)
		if strings.HasPrefix(token, "[unused") {
			text = ""
		}
		// Such vocabularies begin with the most frequent tokens: by Zipf's law the frequency is inverse to the rank.
		words[id] = word{text, -math.Log(float64(id + 2))}
	}
	return words, nil
}

func unigrams(raw json.RawMessage) ([]word, error) {
	var list [][]any
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	if len(list) > maxVocabulary {
		return nil, fmt.Errorf("it has %d tokens", len(list))
	}
	words := make([]word, len(list))
	for id, pair := range list {
		if len(pair) != 2 {
			return nil, fmt.Errorf("token %d is not a pair of a text and a number", id)
		}
		text, _ := pair[0].(string)
		score, _ := pair[1].(float64)
		words[id] = word{strings.TrimSpace(strings.ReplaceAll(text, "\u2581", " ")), score}
	}
	return words, nil
}

// table returns the vectors of all tokens.
func (o *DistillOptions) table(ctx context.Context, vocabulary []word) (*safetensors.Tensor, error) {
	var texts []string
	var ids []int
	for id, w := range vocabulary {
		if w.text != "" {
			texts, ids = append(texts, w.text), append(ids, id)
		}
	}
	var found [][]float32
	var known []int
	const part = 2048
	for first := 0; first < len(texts); first += part {
		if o.Progress != nil {
			o.Progress(first, len(texts))
		}
		end := min(first+part, len(texts))
		results, err := embed.All(ctx, o.Teacher, o.About, embed.Document, texts[first:end])
		if err != nil {
			return nil, err
		}
		for i, r := range results {
			if r.Err == nil && !r.Empty && len(r.Vector) == o.About.Dims { // other tokens have no text of their own
				found, known = append(found, r.Vector), append(known, ids[first+i])
			}
		}
	}
	if o.Progress != nil {
		o.Progress(len(texts), len(texts))
	}
	if len(found) < 2 {
		return nil, fmt.Errorf("only %d of its %d tokens have a vector", len(found), len(vocabulary))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	kept, err := principal(found, cmp.Or(o.Dims, o.About.Dims))
	if err != nil {
		return nil, err
	}
	weights := rarity(vocabulary)
	made := &safetensors.Tensor{Name: "embeddings", Shape: []int{len(vocabulary), len(kept[0])}}
	made.Floats = make([]float32, len(vocabulary)*len(kept[0]))
	for i, id := range known {
		row := made.Floats[id*len(kept[0]):]
		for k, x := range kept[i] {
			row[k] = x * float32(weights[id])
		}
	}
	return made, nil
}

// rarity returns the weight of each token: much less than 1 for frequent tokens, which carry little information (smooth
// inverse frequency).
func rarity(vocabulary []word) []float64 {
	const smooth = 1e-4
	all, weights := 0.0, make([]float64, len(vocabulary))
	for _, w := range vocabulary {
		if w.text != "" {
			all += math.Exp(w.log)
		}
	}
	for id, w := range vocabulary {
		weights[id] = smooth / (smooth + math.Exp(w.log)/all)
	}
	return weights
}

// fill writes the files of the folder.
func (o *DistillOptions) fill(made string, table *safetensors.Tensor) (err error) {
	if err := makeFolder(made); err != nil {
		return err
	}
	copied := ImportOptions{From: o.From}
	if copied.from, err = openFolder(o.From); err != nil {
		return err
	}
	defer copied.from.close()
	for _, name := range []string{tokenizerFile, "LICENSE", "LICENSE.txt", "NOTICE"} {
		err := copyFile(copied, name, filepath.Join(made, name))
		if err != nil && (name == tokenizerFile || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	config := map[string]any{
		"model_type": "model2vec", "architectures": []string{"StaticModel"}, "normalize": true,
		"hidden_dim": table.Shape[1], "max_length": staticTokens,
		"teacher": o.About.Model, "teacher_fingerprint": o.About.Fingerprint,
	}
	if err := writeJSON(made, configFile, config); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(made, weightsFile))
	if err != nil {
		return err
	}
	if err := errors.Join(safetensors.Write(file, table), file.Close()); err != nil {
		return err
	}
	return sumAll(made)
}

// Agreement says how similarly two models rank texts.
type Agreement struct {
	Rank  float64 `json:"rank"`  // Spearman's correlation of the similarities of all pairs of texts; 1 is the same order
	Ten   float64 `json:"ten"`   // the share of each text's ten nearest that both models find
	Texts int     `json:"texts"` // that were compared
}

// String describes the agreement.
func (a Agreement) String() string {
	return fmt.Sprintf("rank %.3f (1 is the same order), %.0f %% of the ten nearest the same, of %d sample texts", a.Rank,
		100*a.Ten, a.Texts)
}

// Agree compares two models' vectors of the same texts.
func Agree(a, b [][]float32) Agreement {
	const nearest = 10
	likeA, likeB := likenesses(a), likenesses(b)
	found := Agreement{Texts: len(a)}
	var pairsA, pairsB []float64
	for i := range likeA {
		pairsA, pairsB = append(pairsA, likeA[i][:i]...), append(pairsB, likeB[i][:i]...)
		first, second := nearestOf(likeA[i], i, nearest), nearestOf(likeB[i], i, nearest)
		for _, k := range first {
			if slices.Contains(second, k) {
				found.Ten += 1 / float64(len(first)*len(a))
			}
		}
	}
	if len(pairsA) > 1 { // one pair has no order
		found.Rank = stat.Correlation(ranks(pairsA), ranks(pairsB), nil)
	}
	return found
}

func likenesses(vectors [][]float32) [][]float64 {
	all := make([][]float64, len(vectors))
	for i := range vectors {
		for k := range vectors {
			all[i] = append(all[i], embed.Cosine(vectors[i], vectors[k]))
		}
	}
	return all
}

// nearestOf returns the indexes of those most similar to self.
func nearestOf(likeness []float64, self, most int) []int {
	var order []int
	for i := range likeness {
		if i != self {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(likeness[y], likeness[x]) })
	return order[:min(most, len(order))]
}

// ranks returns the rank of each number, from the smallest.
func ranks(numbers []float64) []float64 {
	order := make([]int, len(numbers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(numbers[x], numbers[y]) })
	places := make([]float64, len(numbers))
	for place, i := range order {
		places[i] = float64(place)
	}
	return places
}

// principal centers vectors, and projects them to their first dims principal components, in descending order.
func principal(vectors [][]float32, dims int) ([][]float32, error) {
	if len(vectors) == 0 {
		return nil, nil
	}
	width := len(vectors[0])
	all := mat.NewDense(len(vectors), width, nil)
	for n, v := range vectors {
		for i, x := range v {
			all.Set(n, i, float64(x))
		}
	}
	for i := range width {
		column := mat.Col(nil, i, all)
		mean := stat.Mean(column, nil)
		for n, x := range column {
			all.Set(n, i, x-mean)
		}
	}
	var covariance mat.SymDense
	covariance.SymOuterK(1, all.T())
	var found mat.EigenSym
	if !found.Factorize(&covariance, true) {
		return nil, errors.New("the principal components of the vectors cannot be found")
	}
	var axes, moved mat.Dense
	found.VectorsTo(&axes) // in ascending order of the eigenvalues
	moved.Mul(all, &axes)
	kept := make([][]float32, len(vectors))
	for n := range vectors {
		kept[n] = make([]float32, min(dims, width))
		for k := range kept[n] {
			kept[n][k] = float32(moved.At(n, width-1-k))
		}
	}
	return kept, nil
}

package model

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
)

// The settings that Description.Settings has, in this order.
const (
	settingPooling   = "pooling"
	settingNormalize = "normalize"
	settingMaxTokens = "max_tokens"
	settingLayerNorm = "layer_norm"
	settingScore     = "score" // of a reranker: what becomes of the graph's number
)

var prefixSettings = map[embed.Kind]string{embed.Document: "document_prefix", embed.Query: "query_prefix"}

// fromUser is where a setting comes from that the user states.
const fromUser = "the configuration"

// A family is what the cards of well-known models say of pooling and prefixes, which no file of theirs may say.
type family struct {
	name            *regexp.Regexp
	types           []string // model_type in config.json
	pooling         string
	document, query string
}

// families come from the cards of the models as of 2026-11; the first that matches counts.
var families = []family{
	{
		regexp.MustCompile(`\be5-mistral.*-instruct`), nil, poolLast, "",
		"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
	},
	{
		regexp.MustCompile(`multilingual-e5-large-instruct`), nil, poolMean, "",
		"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
	},
	{regexp.MustCompile(`\be5-(small|base|large)`), []string{"bert", "xlm-roberta"}, poolMean, "passage: ", "query: "},
	{regexp.MustCompile(`\bbge-m3`), []string{"xlm-roberta"}, poolFirst, "", ""},
	{
		regexp.MustCompile(`\bbge-(small|base|large)-en`),
		[]string{"bert"},
		poolFirst, "",
		"Represent this sentence for searching relevant passages: ",
	},
	{
		regexp.MustCompile(`\bbge-(small|base|large)-zh`),
		[]string{"bert"},
		poolFirst, "",
		"为这个句子生成表示以用于检索相关文章：",
	},
	{
		regexp.MustCompile(`mxbai-embed-(large|2d)`),
		[]string{"bert"},
		poolFirst, "",
		"Represent this sentence for searching relevant passages: ",
	},
	{regexp.MustCompile(`snowflake-arctic-embed-(m|l)-v2`), nil, poolFirst, "", "query: "},
	{
		regexp.MustCompile(`snowflake-arctic-embed-(xs|s|m|l)\b`), nil, poolFirst, "",
		"Represent this sentence for searching relevant passages: ",
	},
	{
		regexp.MustCompile(`nomic-embed-text|modernbert-embed`),
		[]string{"nomic_bert", "modernbert"},
		poolMean, "search_document: ", "search_query: ",
	},
	{
		regexp.MustCompile(`UAE-Large`),
		[]string{"bert"},
		poolFirst, "",
		"Represent this sentence for searching relevant passages: ",
	},
	{
		regexp.MustCompile(`embeddinggemma`),
		[]string{"gemma3_text"},
		poolMean, "title: none | text: ", "task: search result | query: ",
	},
	{
		regexp.MustCompile(`Qwen3-Embedding`),
		[]string{"qwen3"},
		poolLast, "",
		"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
	},
	{regexp.MustCompile(`gte-multilingual-base`), nil, poolFirst, "", ""},
	{regexp.MustCompile(`granite-embedding`), nil, poolFirst, "", ""},
	{regexp.MustCompile(`\bgte-(small|base|large)$`), []string{"bert"}, poolMean, "", ""},
	{regexp.MustCompile(`\bgte-(base|large)-en-v1\.5`), nil, poolFirst, "", ""},
	{regexp.MustCompile(`multi-qa-.*-dot-`), nil, poolFirst, "", ""},
	{regexp.MustCompile(`all-MiniLM|all-mpnet|multi-qa|paraphrase-`), nil, poolMean, "", ""},
}

// cardOf returns the settings that a card states, as a line for the configuration: "" where the model is not known. It
// goes by the name that the model was published under, or its folder's, if config.json is of that kind of model.
func cardOf(published, folder, kind string) string {
	for _, f := range families {
		named := f.name.MatchString(published) || f.name.MatchString(filepath.Base(folder))
		if !named || f.types != nil && !slices.Contains(f.types, kind) {
			continue
		}
		line := []string{"pooling: " + f.pooling}
		for name, prefix := range map[string]string{"document_prefix": f.document, "query_prefix": f.query} {
			if prefix != "" {
				line = append(line, fmt.Sprintf("%s: %q", name, prefix))
			}
		}
		slices.Sort(line)
		return strings.Join(line, ", ")
	}
	return ""
}

var cardSetting = regexp.MustCompile(`(\w+): ("(?:[^"\\]|\\.)*"|\w+)`)

// flagsOf writes what a card states as flags for a shell, the pooling among them where it is not stated elsewhere.
func flagsOf(card string, pooling bool) string {
	var flags []string
	for _, found := range cardSetting.FindAllStringSubmatch(card, -1) {
		name, value := strings.ReplaceAll(found[1], "_", "-"), found[2]
		if name == settingPooling && !pooling {
			continue
		}
		if text, err := strconv.Unquote(value); err == nil {
			if value = "'" + text + "'"; strings.ContainsRune(text, '\n') { // no card has an apostrophe
				value = "$'" + strings.ReplaceAll(text, "\n", `\n`) + "'"
			}
		}
		flags = append(flags, "--"+name+" "+value)
	}
	return strings.Join(flags, " ")
}

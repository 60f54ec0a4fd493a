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

// The names of Description.Settings, in this order.
const (
	settingPooling   = "pooling"
	settingNormalize = "normalize"
	settingMaxTokens = "max_tokens"
	settingLayerNorm = "layer_norm"
	settingScore     = "score" // of a reranker: the activation of the graph's number
)

var prefixSettings = map[embed.Kind]string{embed.Document: "document_prefix", embed.Query: "query_prefix"}

// fromUser is the source of a user's setting.
const fromUser = "the configuration"

// A family is the pooling and prefixes of well-known models by their model cards. Their files may not have this
// information.
type family struct {
	name            string // a regular expression
	types           string // model_type in config.json, any of these words; "": any
	pooling         string
	document, query string
}

// Settings of several cards.
const (
	passages   = "Represent this sentence for searching relevant passages: "
	webQueries = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)

// families come from the model cards as of 2026-11; the first match counts.
var families = []family{
	{`\be5-mistral.*-instruct`, "", poolLast, "", webQueries + " "},
	{`multilingual-e5-large-instruct`, "", poolMean, "", webQueries + " "},
	{`\be5-(small|base|large)`, "bert xlm-roberta", poolMean, "passage: ", "query: "},
	{`\bbge-m3`, "xlm-roberta", poolFirst, "", ""},
	{`\bbge-(small|base|large)-en`, "bert", poolFirst, "", passages},
	{`\bbge-(small|base|large)-zh`, "bert", poolFirst, "", "为这个句子生成表示以用于检索相关文章："},
	{`mxbai-embed-(large|2d)`, "bert", poolFirst, "", passages},
	{`snowflake-arctic-embed-(m|l)-v2`, "", poolFirst, "", "query: "},
	{`snowflake-arctic-embed-(xs|s|m|l)\b`, "", poolFirst, "", passages},
	{`nomic-embed-text|modernbert-embed`, "nomic_bert modernbert", poolMean, "search_document: ", "search_query: "},
	{`UAE-Large`, "bert", poolFirst, "", passages},
	{`embeddinggemma`, "gemma3_text", poolMean, "title: none | text: ", "task: search result | query: "},
	{`Qwen3-Embedding`, "qwen3", poolLast, "", webQueries},
	{`gte-multilingual-base`, "", poolFirst, "", ""},
	{`granite-embedding`, "", poolFirst, "", ""},
	{`\bgte-(small|base|large)$`, "bert", poolMean, "", ""},
	{`\bgte-(base|large)-en-v1\.5`, "", poolFirst, "", ""},
	{`multi-qa-.*-dot-`, "", poolFirst, "", ""},
	{`all-MiniLM|all-mpnet|multi-qa|paraphrase-`, "", poolMean, "", ""},
}

// cardOf returns a card's settings as a line for the configuration; "" if the model is unknown. It matches the
// published name of the model, or its folder's, and requires the model type in config.json.
func cardOf(published, folder, kind string) string {
	for _, f := range families {
		name := regexp.MustCompile(f.name)
		named := name.MatchString(published) || name.MatchString(filepath.Base(folder))
		if !named || f.types != "" && !slices.Contains(strings.Fields(f.types), kind) {
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

// flagsOf writes a card's settings as shell flags, with the pooling if nothing else states it.
func flagsOf(card string, pooling bool) string {
	var flags []string
	for _, found := range cardSetting.FindAllStringSubmatch(card, -1) {
		name, value := strings.ReplaceAll(found[1], "_", "-"), found[2]
		if name == settingPooling && !pooling {
			continue
		}
		if text, err := strconv.Unquote(value); err == nil {
			if value = "'" + text + "'"; strings.ContainsRune(text, '\n') { // no card contains an apostrophe
				value = "$'" + strings.ReplaceAll(text, "\n", `\n`) + "'"
			}
		}
		flags = append(flags, "--"+name+" "+value)
	}
	return strings.Join(flags, " ")
}

package model

import (
	"strings"
	"testing"
)

// Cards are found by published names, also if one name is part of another.
func TestCardOf(t *testing.T) {
	t.Parallel()
	const (
		represent = `query_prefix: "Represent this sentence for searching relevant passages: "`
		instruct  = `query_prefix: "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "`
	)
	for _, test := range []struct{ published, kind, want string }{
		{"intfloat/e5-small-v2", "bert", `document_prefix: "passage: ", pooling: mean, query_prefix: "query: "`},
		{"intfloat/multilingual-e5-base", "xlm-roberta", `document_prefix: "passage: ", pooling: mean, query_prefix: "query: "`},
		{"intfloat/multilingual-e5-large-instruct", "xlm-roberta", "pooling: mean, " + instruct},
		{"intfloat/e5-mistral-7b-instruct", "mistral", "pooling: last, " + instruct},
		{"BAAI/bge-small-en-v1.5", "bert", "pooling: cls, " + represent},
		{"BAAI/bge-m3", "xlm-roberta", "pooling: cls"},
		{"mixedbread-ai/mxbai-embed-large-v1", "bert", "pooling: cls, " + represent},
		{"Snowflake/snowflake-arctic-embed-m-v1.5", "bert", "pooling: cls, " + represent},
		{"Snowflake/snowflake-arctic-embed-l-v2.0", "xlm-roberta", `pooling: cls, query_prefix: "query: "`},
		{
			"nomic-ai/nomic-embed-text-v1.5", "nomic_bert",
			`document_prefix: "search_document: ", pooling: mean, query_prefix: "search_query: "`,
		},
		{"thenlper/gte-base", "bert", "pooling: mean"},
		{"Alibaba-NLP/gte-base-en-v1.5", "new", "pooling: cls"},
		{"sentence-transformers/all-MiniLM-L6-v2", "bert", "pooling: mean"},
		{"sentence-transformers/multi-qa-MiniLM-L6-cos-v1", "bert", "pooling: mean"},
		{"sentence-transformers/multi-qa-mpnet-base-dot-v1", "mpnet", "pooling: cls"},
		{"somebody/e5-small-v2", "gpt2", ""}, // the name alone is not enough
		{"somebody/a-model", "bert", ""},
	} {
		if got := cardOf(test.published, "/models/x", test.kind); got != test.want {
			t.Errorf("%s: %s, want %s", test.published, got, test.want)
		}
		name := test.published[strings.Index(test.published, "/")+1:]
		if got := cardOf("", "/models/"+name, test.kind); got != test.want {
			t.Errorf("in a folder of the name: %s, want %s", got, test.want)
		}
	}
}

// The error for a model without a pooling contains the card's settings, even with a long folder path.
func TestNoPooling_HasTheCardWhole(t *testing.T) {
	t.Parallel()
	const most, path = 300, 100 // bytes that a host keeps of a message; a long path before it
	for _, name := range []string{"multilingual-e5-large-instruct", "e5-mistral-7b-instruct", "bge-small-en-v1.5"} {
		for _, kind := range []string{"bert", "xlm-roberta"} {
			s := settings{card: cardOf(name, "", kind)}
			if message := s.noPooling().Error(); s.card != "" && strings.Index(message, s.card)+len(s.card)+path > most {
				t.Errorf("%s: cut: %s", name, message)
			}
		}
	}
}

// A card's flags can be pasted into a shell and equal the configuration's line.
func TestFlagsOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, kind string
		pooling    bool
		want       string
	}{
		{"e5-small-v2", "bert", true, `--document-prefix 'passage: ' --pooling mean --query-prefix 'query: '`},
		{"e5-small-v2", "bert", false, `--document-prefix 'passage: ' --query-prefix 'query: '`},
		{"bge-m3", "xlm-roberta", true, `--pooling cls`},
		{
			"e5-mistral-7b-instruct", "mistral", false,
			`--query-prefix $'Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: '`,
		},
	} {
		if got := flagsOf(cardOf(test.name, "", test.kind), test.pooling); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	for _, f := range families {
		if strings.Contains(f.document+f.query, "'") {
			t.Errorf("%v: an apostrophe, which a shell reads as an end", f)
		}
	}
}

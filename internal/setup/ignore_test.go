package setup_test

import (
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// TestResolve_WhatCountsOfAText: an ignore expression is one deterministic expression over the text only.
func TestResolve_WhatCountsOfAText(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, embedding vector(3))`,
		"CREATE FUNCTION public.pure(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'",
		"CREATE FUNCTION public.noted(text) RETURNS text LANGUAGE sql AS 'INSERT INTO docs VALUES (1) RETURNING $1'")
	for ignore, words := range map[string]string{
		"lower(text)":            "",
		`r."text"`:               "",
		"public.pure(text) -- a": "",
		"lower(regexp_replace(btrim(text), '\\s+', ' ', 'g'))": "",
		"similarity >= 0.99":                 "similarity is not supported",
		"lower(title)":                       "does not name the column text",
		"lower(title || text)":               "not an expression over the text",
		"text || row_key":                    "not an expression over the text",
		"text || random()":                   "random another value",
		"public.noted(text)":                 "noted another value",
		"text || now()":                      "now another value",
		"text || current_user":               "time or user",
		"(SELECT text)":                      "sub-select",
		"text || (SELECT max(id) FROM docs)": "not an expression",
		"max(text)":                          "aggregate",
		"length(text)":                       "want text",
		"text) || (text":                     "not an expression",
		"text, text":                         "of type record",
		"text; DROP TABLE docs":              "not an expression",
		"text || $1":                         "parameter",
		"text || (SELECT title FROM docs)":   "not an expression",
		"regexp_split_to_table(text, ' ')":   "returns a set",
		"text || public.docs.title":          "not an expression",
		"text /* open":                       "not an expression",
		"text] || ARRAY[text":                "not an expression",
	} {
		spec := docs()
		spec.Ignore = ignore
		_, _, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3})
		if words == "" {
			if err != nil {
				t.Errorf("%s: %v", ignore, err)
			}
			continue
		}
		wantError[*refusal.ConfigError](t, err, strings.Fields(words)...)
	}
}

package rows

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// line is a result line of the statement read.
func line(change map[int]string) [][]byte {
	raw := make([][]byte, readColumns)
	for at, value := range change {
		raw[at] = []byte(value)
	}
	return raw
}

func TestScanRow_TakesWhatTheServerSays(t *testing.T) {
	t.Parallel()
	p := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "docs_embedding"}}
	w := New(p, nil, Options{})
	keys, found := []string{"1", "2", "3"}, make([]Row, 3)
	long := strings.Repeat("x", 32)
	for _, raw := range [][][]byte{
		line(map[int]string{
			readPlace: "1", readKey: "01", readKeep: "t", readText: "a\xffb", readBytes: "3", readSource: "s",
			readLedgerSource: "s", readLedgerText: long,
			readLedgerVector: "v", readLedgerGeneration: "4", readLedgerVersion: "77", readStored: long,
			readStoredGeneration: "3",
		}),
		line(map[int]string{
			readPlace: "2", readKey: "2", readKeep: "f", readBytes: "5000000", readSum: long,
			readSource: "s",
		}),
		line(map[int]string{readPlace: "3"}),
	} {
		if err := w.scan(raw, keys, found); err != nil {
			t.Fatal(err)
		}
	}
	first, second, third := &found[0], &found[1], &found[2]
	if !first.Found || first.Actual != "01" || !first.Keep || first.Text != "a\uFFFDb" || !first.Broken || !first.Ledger ||
		first.LedgerGeneration != 4 ||
		first.LedgerVersion != "77" || !first.Stored || first.StoredGeneration != 3 ||
		first.TextHash != pipeline.TextHash("a\uFFFDb") {
		t.Errorf("the first row is %+v", first)
	}
	if !second.LeftOut() || !second.Hashed || string(second.TextHash[:]) != long || second.Keep || second.Wanted() {
		t.Errorf("the second row, whose text was left out, is %+v", second)
	}
	if third.Found || third.Ledger || third.Stored || third.Wanted() {
		t.Errorf("the third row, which is gone, is %+v", third)
	}
}

func TestScanRow_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	w := New(&pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}}, nil, Options{})
	for name, change := range map[string]map[int]string{
		"a place beyond the keys": {readPlace: "2"},
		"no place":                {readPlace: ""},
		"bytes":                   {readPlace: "1", readKey: "1", readBytes: "many"},
		"a generation":            {readPlace: "1", readLedgerSource: "s", readLedgerGeneration: "x"},
		"a stored generation":     {readPlace: "1", readStored: "s", readStoredGeneration: "9999999999"},
	} {
		if err := w.scan(line(change), []string{"1"}, make([]Row, 1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestArgs_OneArrayForEachColumnOfTheKey(t *testing.T) {
	t.Parallel()
	p := &pipeline.Pipeline{Key: make([]pipeline.KeyColumn, 2)}
	s := build(p, func(b *builder) string { return b.param("last") + b.list(keysAsTheyAre, array{"last", "text"}) })
	keys := []string{`1|a\|b`, `2|c`}
	args, err := s.args(p, keys, values{"last": 7, "another": 8})
	if want := []any{7, []string{"1", "2"}, []string{"a|b", "c"}, keys}; err != nil || !reflect.DeepEqual(args, want) {
		t.Fatalf("%v, %v, want %v", args, err, want)
	}
	if _, err := s.args(p, []string{"1"}, values{"last": 7}); !errors.Is(err, ErrSplit) {
		t.Errorf("a key of one column: %v", err)
	}
	if _, err := s.args(p, keys, nil); err == nil || errors.Is(err, ErrSplit) {
		t.Errorf("no value for a parameter: %v", err)
	}
}

// The vector that is not of the row's text counts for nothing, whoever wrote it.
func TestIntact_WhatTheDestinationMustHold(t *testing.T) {
	t.Parallel()
	chunked := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}, Chunked: true, Generation: 1}
	hash := pipeline.TextHash("all chunks")
	r := Row{
		Ledger: true, LedgerText: []byte("text"), LedgerVector: hash[:pipeline.VectorHashSize], LedgerGeneration: 1,
		Stored: true, StoredHash: hash[:], StoredGeneration: 1,
	}
	if !New(chunked, nil, Options{}).Intact(&r) {
		t.Error("the chunks that were written are not taken for such")
	}
	for name, change := range map[string]func(r *Row){
		"a chunk was changed":          func(r *Row) { r.StoredHash = make([]byte, len(hash)) },
		"some are of another model":    func(r *Row) { r.StoredGeneration = -1 },
		"none is stored":               func(r *Row) { r.Stored = false },
		"the entry is older":           func(r *Row) { r.LedgerGeneration = 0 },
		"it is to be embedded anew":    func(r *Row) { r.LedgerVector = nil },
		"it has no text, and a vector": func(r *Row) { r.LedgerText = nil },
	} {
		other := r
		change(&other)
		if New(chunked, nil, Options{}).Intact(&other) {
			t.Errorf("%s: it is taken for intact", name)
		}
	}
}

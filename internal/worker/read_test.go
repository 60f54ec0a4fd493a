package worker

import (
	"errors"
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
	w := New(Options{Pipeline: p})
	keys, found := []string{"1", "2", "3"}, make([]row, 3)
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
		if err := w.scanRow(raw, keys, found); err != nil {
			t.Fatal(err)
		}
	}
	first, second, third := &found[0], &found[1], &found[2]
	if !first.found || first.actual != "01" || !first.keep || first.text != "a\uFFFDb" || !first.broken || !first.ledger ||
		first.ledgerGeneration != 4 ||
		first.ledgerVersion != "77" || !first.stored || first.storedGeneration != 3 ||
		first.textHash != pipeline.TextHash("a\uFFFDb") {
		t.Errorf("the first row is %+v", first)
	}
	if !second.leftOut() || !second.hashed || string(second.textHash[:]) != long || second.keep || second.wanted() {
		t.Errorf("the second row, whose text was left out, is %+v", second)
	}
	if third.found || third.ledger || third.stored || third.wanted() {
		t.Errorf("the third row, which is gone, is %+v", third)
	}
}

func TestScanRow_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	w := New(Options{Pipeline: &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}}})
	for name, change := range map[string]map[int]string{
		"a place beyond the keys": {readPlace: "2"},
		"no place":                {readPlace: ""},
		"bytes":                   {readPlace: "1", readKey: "1", readBytes: "many"},
		"a generation":            {readPlace: "1", readLedgerSource: "s", readLedgerGeneration: "x"},
		"a stored generation":     {readPlace: "1", readStored: "s", readStoredGeneration: "9999999999"},
	} {
		if err := w.scanRow(line(change), []string{"1"}, make([]row, 1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestKeyArrays_OneOfEachColumn(t *testing.T) {
	t.Parallel()
	p := &pipeline.Pipeline{Key: make([]pipeline.KeyColumn, 2)}
	args, err := keyArrays(p, []string{`1|a\|b`, `2|c`})
	if err != nil || len(args) != 2 {
		t.Fatalf("%v, %v", args, err)
	}
	if got := args[1].([]string); got[0] != "a|b" || got[1] != "c" { //nolint:forcetypeassert // a wrong type is a failure
		t.Errorf("the second column is %q", got)
	}
	if _, err := keyArrays(p, []string{"1"}); !errors.Is(err, errSplit) {
		t.Errorf("a key of one column: %v", err)
	}
}

// The vector that is not of the row's text counts for nothing, whoever wrote it.
func TestIntact_WhatTheDestinationMustHold(t *testing.T) {
	t.Parallel()
	chunked := &pipeline.Pipeline{Spec: pipeline.Spec{IntoTable: "t"}, Chunked: true, Generation: 1}
	hash := pipeline.TextHash("all chunks")
	r := row{
		ledger: true, ledgerText: []byte("text"), ledgerVector: hash[:pipeline.VectorHashSize], ledgerGeneration: 1,
		stored: true, storedHash: hash[:], storedGeneration: 1,
	}
	if !r.intact(chunked) {
		t.Error("the chunks that were written are not taken for such")
	}
	for name, change := range map[string]func(r *row){
		"a chunk was changed":          func(r *row) { r.storedHash = make([]byte, len(hash)) },
		"some are of another model":    func(r *row) { r.storedGeneration = -1 },
		"none is stored":               func(r *row) { r.stored = false },
		"the entry is older":           func(r *row) { r.ledgerGeneration = 0 },
		"it is to be embedded anew":    func(r *row) { r.ledgerVector = nil },
		"it has no text, and a vector": func(r *row) { r.ledgerText = nil },
	} {
		other := r
		change(&other)
		if other.intact(chunked) {
			t.Errorf("%s: it is taken for intact", name)
		}
	}
}

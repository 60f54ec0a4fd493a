package worker

import (
	"context"
	"slices"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

func (m *memory) readScan(context.Context) (scanState, error) {
	if m.scan == nil {
		return scanState{}, pgx.ErrNoRows
	}
	return *m.scan, nil
}

func (m *memory) saveScan(_ context.Context, _, after *scanState, _ bool, _ int, look []string, _ bool) (bool, error) {
	if m.unsaved > 0 {
		m.unsaved--
		return false, nil
	}
	m.again = append(m.again, look...)
	if *m.scan = *after; after.Phase == "done" {
		m.scan = nil
	}
	return true, nil
}

func (m *memory) scanProgress(context.Context) (phase string, seen, expected int64, err error) {
	return "rows", 10, 20, nil
}

func (m *memory) ledgerPage(_ context.Context, after *string) ([]string, error) {
	return next(m.ledger, after), nil
}

func (m *memory) withoutTask(_ context.Context, keys []string) ([]string, error) {
	return slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(m.again, key) }), nil
}

func (*memory) blockers(context.Context, string) ([]database.Blocker, error) {
	return []database.Blocker{{}}, nil
}

// next returns the two keys that come after one, from the largest down.
func next[V any](of map[string]V, after *string) []string {
	var keys []string
	for key := range of {
		if after == nil || key < *after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	return keys[:min(len(keys), 2)]
}

// memoryPages are its rows, two at a time.
type memoryPages struct{ m *memory }

func (p memoryPages) Rows(_ context.Context, which string, after *string) (keys []string, known []bool, err error) {
	if which == "bad" {
		return nil, nil, refused(pgerrcode.InvalidTextRepresentation)
	}
	keys = next(p.m.source, after)
	for _, key := range keys {
		known = append(known, p.m.ledger[key].Ledger)
	}
	return keys, known, nil
}

func (p memoryPages) Vectors(_ context.Context, after *string) (keys []string, gone []bool, err error) {
	if p.m.p.InSource() {
		return nil, nil, nil
	}
	keys = next(p.m.stored, after)
	for _, key := range keys {
		_, there := p.m.source[key]
		gone = append(gone, !there)
	}
	return keys, gone, nil
}

func (p memoryPages) Gone(_ context.Context, keys []string) (read, gone []string, err error) {
	for _, key := range keys {
		if _, there := p.m.source[key]; !there {
			gone = append(gone, key)
		}
	}
	return keys, gone, nil
}

func (p memoryPages) Read(ctx context.Context, keys []string, each func(found []rows.Row),
	refused func(key string, err error),
) error {
	for _, key := range keys {
		found, err := p.m.Read(ctx, []string{key}, 0)
		switch {
		case err == nil:
			each(found)
		case p.m.OfSomeRow(ctx, err):
			refused(key, err)
		default:
			return err
		}
	}
	return nil
}

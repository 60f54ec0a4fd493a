package worker

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

// strays returns keys of an embedding table that neither the source table nor the ledger knows: of a source table
// that was dropped and recreated, or of the one who filled an embedding table that was taken over. They are given in
// portions, without those that have a task already. The table is read by pages; when none was found up to its end,
// there are none.
func (s *Scan) strays(ctx context.Context) (found []string, err error) {
	for len(found) < rows.PageRows {
		keys, gone, err := s.pages.Vectors(ctx, s.stray)
		if err != nil {
			s.stray = nil // it may be no key any more
			return nil, err
		}
		if len(keys) == 0 {
			s.stray = nil // the next call begins again
			break
		}
		s.stray = &keys[len(keys)-1]
		var strays []string
		for i, key := range keys {
			if gone[i] {
				strays = append(strays, key)
			}
		}
		if strays, err = s.withoutTask(ctx, strays); err != nil {
			return nil, err
		}
		found = append(found, strays...)
	}
	return found, nil
}

// withoutTask leaves out keys that will be looked at anyway.
func (s *Scan) withoutTask(ctx context.Context, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys, err := s.w.store.withoutTask(ctx, keys)
	return keys, wrap.Errorf(err, "look for tasks")
}

package resolve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
)

// Loader loads the pipelines of a slot again and again, for one role. One that could work when it was looked at is not
// looked at again while its row, its table and its publication are of the versions that they were, as the heartbeat
// tells it; for remembered at most. A nil Loader remembers nothing. It is safe for concurrent use.
type Loader struct {
	// Changed has only those pipelines parsed that could not work, or whose tables are not as they were then: for who
	// asks what is not as it is stored.
	Changed bool
	// Only are the numbers of those that are looked at, once; nil: all.
	Only []int32
	// Once is for who looks once, alone: nothing is remembered, and Rows are those that were read.
	Once bool
	Rows []Stored

	mu      sync.Mutex
	known   map[int32]looked
	trusted time.Time // when it was seen last that nothing in the schema embedsidecar is of strangers
}

// looked is a pipeline as it was found.
type looked struct {
	mark string
	at   time.Time
	p    pipeline.Pipeline
}

// remembered is for how long: what has no version, such as a privilege, is seen by then. Anyone who meets it before
// says so by Forget.
const remembered = 10 * time.Minute

// Forget has everything looked at again.
func (l *Loader) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.trusted = nil, time.Time{}
}

// current is catalog.Current. A look for strangers that found none stands for the loads of a while, as it does for
// the connections of a pool.
func (l *Loader) current(ctx context.Context, tx pgx.Tx) error {
	if l == nil {
		return catalog.Current(ctx, tx)
	}
	begun := time.Now()
	l.mu.Lock()
	trusted := l.trusted
	l.mu.Unlock()
	if begun.Sub(trusted) < database.Shareable {
		return catalog.NewEnough(ctx, tx)
	}
	if err := catalog.Current(ctx, tx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trusted = begun
	return nil
}

// only are the numbers of those that are looked at; nil: all.
func (l *Loader) only() []int32 {
	if l == nil {
		return nil
	}
	return l.Only
}

// marks returns the versions of what pipelines depend on, and which of them have another than when they were stored.
// They are read before the pipelines are looked at: what changes in between has another version the next time.
func (l *Loader) marks(ctx context.Context, q database.Querier, slot string) (marks map[int32]string,
	changed map[int32]bool, err error,
) {
	if l == nil || l.Only != nil || l.Once {
		return nil, nil, nil // nobody asks for them
	}
	type row struct {
		id             int32
		mark           string
		known, current string
	}
	rows, err := database.Collect(ctx, q, "pipeline_catalogue", func(r pgx.CollectableRow) (found row, err error) {
		values := r.RawValues()
		parts := make([]string, len(values))
		for i, field := range r.FieldDescriptions() {
			switch value := string(values[i]); field.Name {
			case "known":
				found.known = value
			case "status", "scan_asked": // they are about the stream
			case "current":
				found.current = value
				fallthrough
			default:
				parts[i] = value
			}
		}
		found.mark = strings.Join(parts, "\x00")
		targets := make([]any, len(values)) // nil: not read
		targets[0] = &found.id
		return found, r.Scan(targets...)
	}, pgx.StrictNamedArgs{"slot": slot, "pipeline": nil})
	if err != nil {
		return nil, nil, fmt.Errorf("read the catalogue: %w", err)
	}
	marks, changed = make(map[int32]string, len(rows)), map[int32]bool{}
	for _, r := range rows {
		marks[r.id] = r.mark
		changed[r.id] = r.known != "" && r.known != r.current
	}
	return marks, changed, nil
}

// recall returns the pipelines that are as they were, and the numbers of those to look at: the others of only, which is
// nil for all.
func (l *Loader) recall(marks map[int32]string, only []int32) (known []pipeline.Pipeline, rest []int32) {
	if l == nil {
		return nil, only
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(marks)) {
		if k, is := l.known[id]; is && k.mark == marks[id] && time.Since(k.at) <= remembered {
			known = append(known, k.p)
		} else {
			rest = append(rest, id)
		}
	}
	if len(known) == 0 {
		return nil, only
	}
	return known, rest
}

// remember keeps a pipeline that can work; others are looked at again and again.
func (l *Loader) remember(id int32, mark string, p *pipeline.Pipeline) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Status != pipeline.Active {
		delete(l.known, id)
		return
	}
	if l.known == nil {
		l.known = map[int32]looked{}
	}
	l.known[id] = looked{mark, time.Now(), *p}
}

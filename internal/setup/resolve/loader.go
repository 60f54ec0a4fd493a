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

// Loader loads the pipelines of a slot repeatedly, for one role. It caches working pipelines while the versions of
// their row, table and publication stay the same, as the heartbeat reports them, but at most for remembered. It is safe
// for concurrent use.
type Loader struct {
	// Changed limits parsing to the pipelines that could not work and those whose tables have changed: for callers that
	// look for differences from the stored state.
	Changed bool
	// Only are the numbers of the pipelines to load, without a cache; nil: all.
	Only []int32
	// Once is for callers that load once and do not share the Loader: nothing is cached, and Rows are the rows that
	// were read.
	Once bool
	Rows []Stored

	mu      sync.Mutex
	known   map[int32]looked
	trusted time.Time           // when the schema embedsidecar last passed the trust check
	resting map[int32]time.Time // pipelines that the server planned for too long, until when they are not looked at
}

// looked is a cached pipeline.
type looked struct {
	mark string
	at   time.Time
	p    pipeline.Pipeline
}

// remembered limits the age of the cache, so that changes without a version, such as of privileges, are noticed. A
// caller that meets such a change earlier calls Forget.
const remembered = 10 * time.Minute

// Forget clears the cache.
func (l *Loader) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.trusted = nil, time.Time{}
}

// current is catalog.Current with a cache: a trust check without a finding stays valid for a while, as for the
// connections of a pool.
func (l *Loader) current(ctx context.Context, tx pgx.Tx) error {
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

// marks returns the versions of what pipelines depend on, and which of them changed since they were stored. It runs
// before the pipelines are inspected, so a change in between gives another version the next time.
func (l *Loader) marks(ctx context.Context, q database.Querier, slot string) (marks map[int32]string,
	changed map[int32]bool, err error,
) {
	if l.Only != nil || l.Once {
		return nil, nil, nil // not needed
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
			case "status", "scan_asked", "standby_names": // do not affect the pipeline's definition
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

// recall returns the unchanged pipelines, and the numbers of the others to load; nil: all.
func (l *Loader) recall(marks map[int32]string) (known []pipeline.Pipeline, rest []int32) {
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
		return nil, l.Only
	}
	return known, rest
}

// resting is how long a pipeline is not looked at after the server planned its statement for too long.
const resting = time.Minute

func (l *Loader) overran(id int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.resting[id])
}

// rest keeps a pipeline from being looked at for a while. Forget does not change that.
func (l *Loader) rest(id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting == nil {
		l.resting = map[int32]time.Time{}
	}
	l.resting[id] = time.Now().Add(resting)
}

// remember caches a pipeline that can work.
func (l *Loader) remember(id int32, mark string, p *pipeline.Pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Status != pipeline.Active || l.Once {
		delete(l.known, id)
		return
	}
	if l.known == nil {
		l.known = map[int32]looked{}
	}
	l.known[id] = looked{mark, time.Now(), *p}
}

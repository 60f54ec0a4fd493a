package resolve

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
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

	mu    sync.Mutex
	known map[int32]looked
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
	l.known = nil
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

// recall returns a pipeline that is as it was.
func (l *Loader) recall(id int32, mark string, p *pipeline.Pipeline) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k, is := l.known[id]
	if !is || mark == "" || k.mark != mark || time.Since(k.at) > remembered {
		return false
	}
	*p = k.p
	return true
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

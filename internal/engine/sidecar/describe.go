package sidecar

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
)

// asking is a question to an embedder what it is.
type asking struct {
	since time.Time
	done  chan struct{} // closed when there is an answer

	d   embed.Description
	err error
}

// startingError means that a pipeline cannot be started yet: its embedder has not said what it is, or still has a batch
// that the pipeline gave it before it was stopped. Anyone who waits for it is woken.
type startingError struct {
	since time.Time
	what  string
}

func (e *startingError) Error() string { return e.what }

// startTimeout is for how long a pipeline that is being started is not said to wait for its embedder.
const startTimeout = 5 * time.Second

// descriptions ask embedders what they are, and wait for none. They are for one goroutine.
type descriptions struct {
	open   map[*embed.Service]*asking
	work   sync.WaitGroup
	keeper *restart.Keeper
	answer func() // called when there is an answer
}

// get returns what an embedder is, or *startingError when it has not said so: then it is asked, and the next call may
// return its answer.
func (d *descriptions) get(ctx context.Context, service *embed.Service) (embed.Description, error) {
	a := d.open[service]
	if a == nil {
		a = &asking{since: time.Now(), done: make(chan struct{})}
		d.open[service] = a
		d.work.Go(func() {
			a.err = d.keeper.Guard(ctx, restart.Pipelines, func() (err error) { a.d, err = service.Describe(ctx); return err })
			close(a.done)
			d.answer()
		})
	}
	select {
	case <-a.done:
		return a.d, a.err
	default:
		return embed.Description{}, &startingError{a.since, "it is being started"}
	}
}

// forget has embedders that have answered asked again.
func (d *descriptions) forget() {
	maps.DeleteFunc(d.open, func(_ *embed.Service, a *asking) bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	})
}

package sidecar

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
)

// asking is a Describe request to an embedder.
type asking struct {
	since time.Time
	done  chan struct{} // closed on the answer

	d   embed.Description
	err error
}

// startingError means that a pipeline cannot start yet: its embedder has not answered Describe, or still holds a batch
// from before a stop. A later event wakes the supervisor.
type startingError struct {
	since time.Time
	what  string
}

func (e *startingError) Error() string { return e.what }

// startTimeout is how long a starting pipeline is not yet reported as waiting for its embedder.
const startTimeout = 5 * time.Second

// descriptions sends Describe requests to embedders without waiting. It is for one goroutine.
type descriptions struct {
	open   map[*embed.Service]*asking
	work   sync.WaitGroup
	keeper *restart.Keeper
	answer func() // called on an answer
}

// get returns an embedder's description. If there is none yet, it requests it and returns *startingError; a later call
// returns the answer.
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

// forget drops the answers, so that the embedders are asked again.
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

package sidecar

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/restart"
)

// asking is a question to an embedder what it is.
type asking struct {
	done chan struct{} // closed when there is an answer

	d   embed.Description
	err error
}

// errStarting means that an embedder has not said yet what it is.
var errStarting = &embed.Error{Class: embed.Transient, Code: "starting", Err: errors.New("it is being started")}

// describeTimeout is how long all embedders together are waited for, each time the pipelines are looked at.
const describeTimeout = 5 * time.Second

// descriptions ask embedders what they are, one that takes its time without keeping others waiting. They are for one
// goroutine.
type descriptions struct {
	open   map[*embed.Service]*asking
	work   sync.WaitGroup
	keeper *restart.Keeper
	answer func() // called when an answer came for which nobody waited any more
}

// ask asks an embedder what it is, unless it is being asked. An answer after until is closed calls for another look.
func (d *descriptions) ask(ctx context.Context, service *embed.Service, until <-chan struct{}) *asking {
	a := d.open[service]
	if a != nil {
		return a
	}
	a = &asking{done: make(chan struct{})}
	d.open[service] = a
	d.work.Go(func() {
		a.err = d.keeper.Guard(ctx, restart.Pipelines, func() (err error) { a.d, err = service.Describe(ctx); return err })
		close(a.done)
		select {
		case <-until:
			d.answer()
		default: // whoever asked is still there
		}
	})
	return a
}

// get returns what an embedder is, or errStarting when it has not said so by the time that until is closed: then it
// goes on being asked, and the next call returns its answer.
func (d *descriptions) get(ctx context.Context, service *embed.Service, until <-chan struct{}) (embed.Description,
	error,
) {
	a := d.ask(ctx, service, until)
	select {
	case <-a.done:
	case <-until:
		select {
		case <-a.done: // both
		default:
			return embed.Description{}, errStarting
		}
	}
	delete(d.open, service)
	return a.d, a.err
}

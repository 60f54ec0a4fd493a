package sidecar

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// otherModelError means that the embedder is not the one that made a pipeline's vectors.
type otherModelError struct{ reason string }

func (e *otherModelError) Error() string { return e.reason }

// problem describes why a pipeline could not be started.
func (s *Sidecar) problem(err error) *health.Problem {
	code := health.PluginDown
	_, asked := errors.AsType[*embed.Error](err)
	if _, starting := errors.AsType[*startingError](err); starting {
		asked = true
	}
	if other, is := errors.AsType[*otherModelError](err); is {
		code, err = health.OtherModel, other
	} else if !asked {
		code = health.PluginUnknown // no plugin or model with this name
	}
	return &health.Problem{Code: code, Detail: s.shown(err)}
}

// shown returns an error as one line of limited length, without passwords.
func (s *Sidecar) shown(err error) string {
	const most = 500
	text := strings.Join(strings.Fields(database.Words(err)), " ")
	if s.o.Redact != nil {
		text = s.o.Redact(text)
	}
	return s.storable(wording.Cut(text, most))
}

// problemOf returns why a pipeline is not processed, or not successfully; nil: it is.
func (s *Sidecar) problemOf(state *State) *health.Problem {
	if state.Problem != nil {
		return state.Problem
	}
	return s.troubleOf(state)
}

// troubleOf returns why a pipeline is processed without success: its embedder fails repeatedly, or all texts fail.
func (s *Sidecar) troubleOf(state *State) *health.Problem {
	const hiccups = 3
	if state.service != nil {
		if trouble := state.service.Trouble(); trouble.Failures >= hiccups {
			return &health.Problem{Code: health.PluginDown, Detail: "the embedder gives no answer; last error: " +
				s.shown(trouble.Err)}
		}
	}
	if state.Worker != nil {
		if why := state.Worker.Refused.Load(); why != nil {
			return &health.Problem{Code: health.Misconfigured, Detail: *why + "; embedsidecar check names what is missing"}
		}
		if why := state.Worker.Rest.Load(); why != nil {
			return &health.Problem{Code: health.Failing, Detail: *why}
		}
		if limit := state.Worker.Held.Load(); limit != nil {
			return &health.Problem{Code: health.Held, Detail: "held back by limits." + *limit}
		}
	}
	return nil
}

// waits logs why a pipeline waits, when that changes. It is called by one goroutine only.
func (s *Sidecar) waits(ctx context.Context, name string, p *health.Problem) {
	told, waited := s.waiting[name]
	switch {
	case p == nil && waited:
		delete(s.waiting, name)
	case p != nil && (!waited || told != *p):
		s.waiting[name] = *p
		s.o.Log.WarnContext(ctx, "pipeline waits", "pipeline", name, "state", string(p.Code), "reason", p.Detail)
	}
}

// stuckAfter is how long a stream may fail before it is reported as stuck: a server restart takes a while.
const stuckAfter = 10 * time.Second

// streaming returns this sidecar's state for the slot, and why it does not stream.
func (s *Sidecar) streaming() (health.Stream, string) {
	stats := s.Stream()
	switch {
	case s.o.NoStream:
		return health.NoStream, ""
	case stats == nil:
		return health.Starting, ""
	}
	trouble := stats.Trouble.Load()
	switch {
	case trouble != nil && time.Since(trouble.Since) > stuckAfter && !stats.Making.Load():
		why := "the server does not answer"
		if trouble.Err != nil {
			why = s.shown(trouble.Err)
		}
		return health.Stuck, "since " + trouble.Since.UTC().Format(time.RFC3339) + ": " + why
	case stats.Streaming.Load():
		return health.Streaming, ""
	case stats.Standby.Load():
		return health.Standby, ""
	case stats.Making.Load():
		return health.Making, strings.Join(s.blockers(), "; ")
	}
	return health.Starting, ""
}

// blockers returns the transactions that block the creation of the slot, as last seen by the stream.
func (s *Sidecar) blockers() []string {
	stats := s.Stream()
	if stats == nil {
		return nil
	}
	if list := stats.Blockers.Load(); list != nil {
		return database.Named(*list)
	}
	return nil
}

// notice is state that only this process knows.
type notice struct {
	stream   health.Stream
	detail   string
	problems map[int32]health.Problem
}

// same compares two notices: by state, and also by wording, which changes with each error. Whether there is a detail at
// all belongs to the state.
func (n *notice) same(o *notice) (states, words bool) {
	states = n.stream == o.stream && (n.detail == "") == (o.detail == "") && maps.EqualFunc(n.problems, o.problems,
		func(a, b health.Problem) bool { return a.Code == b.Code })
	return states, states && n.detail == o.detail && maps.Equal(n.problems, o.problems)
}

func (s *Sidecar) notice() *notice {
	n := &notice{problems: map[int32]health.Problem{}}
	n.stream, n.detail = s.streaming()
	states := s.applied()
	for i := range states {
		// Leave out what the tables already tell.
		p := &states[i].Pipeline
		known := !p.Enabled || p.Halted || p.Closed || p.Spent || p.Status != pipeline.Active && !s.idle()
		if problem := s.problemOf(&states[i]); problem != nil && !known {
			n.problems[p.ID] = *problem
		}
	}
	return n
}

// notices stores what only this process knows when it changes: why a pipeline is not processed, the state for the slot,
// and speeds. Other sessions read it there. An idle sidecar writes nothing. A new wording of the same state waits for a
// heartbeat.
func (s *Sidecar) notices(ctx context.Context) error {
	look := time.NewTicker(min(time.Second, s.o.Heartbeat))
	defer look.Stop()
	stored, at, as := &notice{stream: health.Starting}, time.Now(), s.me()
	var fast speeds
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		s.noteSpeeds(ctx, &fast)
		now := s.notice()
		if me := s.me(); me != as {
			stored, as = &notice{stream: health.Starting}, me // a new row without a notice
		}
		if states, words := now.same(stored); words || states && time.Since(at) < s.o.Heartbeat {
			continue
		}
		_, err := s.o.Pool.Exec(ctx, "UPDATE embedsidecar.worker SET stream = $2, stream_detail = $3, problems = $4, last_seen_at = now() WHERE worker_id = $1",
			as.id, string(now.stream), now.detail, now.problems)
		if err != nil {
			if ctx.Err() == nil {
				s.o.Log.DebugContext(ctx, "notices not stored yet", "error", err)
			}
			continue
		}
		stored, at = now, time.Now()
	}
}

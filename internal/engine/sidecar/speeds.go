package sidecar

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
)

// speeds measures how fast this sidecar currently processes its pipelines, for queries. It is for one goroutine.
type speeds struct {
	meters map[int32]*speed.Meter
	stored map[int32]speed.Speed // stored in the row of this registration
	as     *registration
	at     time.Time
}

// look measures the pipelines. It leaves out idle ones.
func (v *speeds) look(states []State, at time.Time) map[int32]speed.Speed {
	now, meters := map[int32]speed.Speed{}, map[int32]*speed.Meter{}
	for i := range states {
		s := &states[i]
		if s.Worker == nil {
			continue
		}
		id := s.Pipeline.ID
		meter := v.meters[id]
		meter = cmp.Or(meter, &speed.Meter{})
		meters[id] = meter
		c := speed.Counted{Rows: doneOf(s.Worker).succeeded}
		if s.Service != nil {
			c.Texts, c.Calls = s.Service.Texts.Load(), s.Service.Calls.Load()
			c.Took = time.Duration(s.Service.Took.Load())
		}
		if got := meter.Look(c, s.Worker.Busy.Load() > 0, at); got != (speed.Speed{}) {
			now[id] = got
		}
	}
	v.meters = meters
	return now
}

// noteSpeeds measures, and stores changed speeds once per heartbeat: an idle sidecar writes nothing.
func (s *Sidecar) noteSpeeds(ctx context.Context, v *speeds) {
	at := time.Now()
	now, me := v.look(s.applied(), at), s.me()
	if me != v.as { // a new row without speeds
		v.as, v.stored = me, nil
	}
	if at.Sub(v.at) < s.o.Heartbeat || maps.Equal(now, v.stored) {
		return
	}
	_, err := s.o.Pool.Exec(ctx, "UPDATE embedsidecar.worker SET speeds = $2 WHERE worker_id = $1", me.id, now)
	if err != nil {
		if ctx.Err() == nil {
			s.o.Log.DebugContext(ctx, "speeds not stored yet", "error", err)
		}
		return
	}
	v.stored, v.at = now, at
}

package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// running returns a Stream whose sessions end as they are told: the n-th, from 1, with what ends says.
func running(o Options, ends func(s *Stream, n int64) error) (*Stream, *atomic.Int64) {
	o.Slot, o.Log = "docs", slog.New(slog.DiscardHandler)
	s, n := New(o), new(atomic.Int64)
	s.attempt = func(ctx context.Context) error {
		err := ends(s, n.Add(1))
		if err == nil {
			<-ctx.Done()
			err = ctx.Err()
		}
		return err
	}
	s.renew = func(_ context.Context, reason string) error {
		if reason == mended {
			return slot.ErrBusy
		}
		return nil
	}
	return s, n
}

// mended is the reason of a gap that another sidecar answers first.
const mended = "another one mends it"

// What a session's end means for the next one.
func TestRun_AnswersTheEndOfASession(t *testing.T) {
	t.Parallel()
	shutdown := &pgconn.PgError{Code: pgerrcode.AdminShutdown}
	lost := fmt.Errorf("receive: %w", errors.New("connection reset"))
	for name, c := range map[string]struct {
		end              error
		within           time.Duration // the next session begins
		standby, trouble bool
		reconnects, gaps int64
	}{
		"the connection broke":       {lost, 200 * time.Millisecond, false, true, 1, 0},
		"another one streams":        {slot.ErrBusy, 4 * time.Second, true, false, 0, 0},
		"another one took over":      {queue.ErrEpochLost, 4 * time.Second, true, false, 0, 0},
		"something is missing":       {&gapError{"the slot does not exist"}, time.Millisecond, false, true, 0, 1},
		"another one mends it":       {&gapError{mended}, 4 * time.Second, true, false, 0, 0},
		"a server that does not say": {shutdown, 200 * time.Millisecond, false, true, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var scans atomic.Int64
			s, n := running(Options{OnReload: func() { scans.Add(1) }}, func(s *Stream, n int64) error {
				if n == 1 {
					s.stats.Streaming.Store(true)
					return c.end
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			synctest.Wait()
			if got := s.stats.Standby.Load(); got != c.standby {
				t.Errorf("%s: standing by: %t", name, got)
			}
			pass(c.within)
			if n.Load() != 2 || s.stats.Reconnects.Load() != c.reconnects || s.stats.Gaps.Load() != c.gaps ||
				scans.Load() != c.gaps || (s.stats.Trouble.Load() != nil) != true && c.trouble {
				t.Errorf("%s: %d sessions after %s, %d reconnects, %d gaps, trouble %+v", name, n.Load(), c.within,
					s.stats.Reconnects.Load(), s.stats.Gaps.Load(), s.stats.Trouble.Load())
			}
			cancel()
			if err := <-ended; err != nil || s.stats.Streaming.Load() || s.stats.Connected.Load() {
				t.Errorf("%s: when told to stop: %v", name, err)
			}
		})
	}
}

func TestRun_EndsWhereAPersonMustAct(t *testing.T) {
	t.Parallel()
	fatal := &FatalError{Kind: Conflict, Reason: "it is somebody else's", Way: "another name"}
	for name, c := range map[string]struct {
		o     Options
		end   error
		renew error
		kind  Kind
	}{
		"the slot is not ours":        {Options{}, fatal, nil, Conflict},
		"a gap that is to stop it":    {Options{StopOnLost: true}, &gapError{"gone"}, nil, Lost},
		"a gap that cannot be mended": {Options{}, &gapError{"gone"}, fatal, Conflict},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := running(c.o, func(*Stream, int64) error { return c.end })
			s.renew = func(context.Context, string) error { return c.renew }
			got, ok := errors.AsType[*FatalError](s.Run(t.Context()))
			if !ok || got.Kind != c.kind || got.Error() == "" || got.Way == "" {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}

// A slot that cannot be made anew now is tried again, with pauses that grow; what the server cannot pass for good is
// such a gap.
func TestRun_TriesAgainWithPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := &undecodedError{&pgconn.PgError{Code: "22P05", Message: "no equivalent"}}
		s, n := running(Options{}, func(*Stream, int64) error { return refused })
		made := int64(0)
		down := errors.New("not now")
		s.renew = func(context.Context, string) error {
			made++
			return down
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := n.Load(); n < 35 || n > 60 || made != n/maxTries {
			t.Errorf("%d sessions in a minute, and %d tries to make the slot anew", n, made)
		}
		trouble := s.stats.Trouble.Load()
		if trouble == nil || trouble.Err == nil || time.Since(trouble.Since) < 59*time.Second {
			t.Errorf("trouble %+v, want that it has lasted for a minute", trouble)
		}
	})
}

// A session that lasts ends the trouble; one that fails at once does not.
func TestSteady_EndsTheTroubleAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := stream()
		s.trouble(errors.New("interrupted"))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := (&session{s: s}).steady(short); err != nil || s.Stats().Trouble.Load() == nil {
			t.Errorf("%v: a session of a second ends the trouble", err)
		}
		if err := (&session{s: s}).steady(t.Context()); err != nil || s.Stats().Trouble.Load() != nil {
			t.Errorf("%v: a session that lasts leaves the trouble", err)
		}
	})
}

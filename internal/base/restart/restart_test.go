package restart_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/restart"
)

// A loop that panics restarts; the panic is counted, and logged without possible row text.
func TestP5_ALoopThatPanicsBeginsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		k := restart.New(slog.New(slog.NewTextHandler(&log, nil)))
		runs := 0
		err := k.Keep(t.Context(), restart.Scan, func(context.Context) error {
			switch runs++; runs {
			case 1:
				panic("the text of a row")
			case 2:
				list := make([]int, runs-1)
				_ = list[runs]
			}
			return errors.New("its own end")
		})
		if runs != 3 || err == nil || err.Error() != "its own end" || k.Panics(restart.Scan) != 2 || k.Panics(restart.Worker) != 0 {
			t.Errorf("%d runs, %v, %d panics", runs, err, k.Panics(restart.Scan))
		}
		for _, want := range []string{"part=scan", "a value of type string", "index out of range [2]", "restart_test.go"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q: %s", want, &log)
			}
		}
		if strings.Contains(log.String(), "the text of a row") {
			t.Errorf("the log has what may be a row's text: %s", &log)
		}
	})
}

// A loop that panics repeatedly ends with an error, so that the process does, too; one that panics now and then
// continues.
func TestP5_ALoopThatPanicsAgainAndAgainIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := restart.New(slog.New(slog.DiscardHandler))
		began := time.Now()
		err := k.Keep(t.Context(), restart.Worker, func(context.Context) error { panic(1) })
		var e *restart.Error
		if !errors.As(err, &e) || e.Part != restart.Worker || k.Panics(restart.Worker) != 6 ||
			time.Since(began) < 30*time.Second {
			t.Errorf("%v after %d panics and %s", err, k.Panics(restart.Worker), time.Since(began))
		}
		runs := 0
		err = k.Keep(t.Context(), restart.Sweeps, func(context.Context) error {
			if runs++; runs > 50 {
				return nil
			}
			<-time.After(3 * time.Minute)
			panic(fmt.Sprint(runs))
		})
		if err != nil {
			t.Errorf("one that panics every three minutes: %v after %d runs", err, runs)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = k.Keep(ctx, restart.Notices, func(context.Context) error {
			cancel()
			panic(1)
		})
		if !errors.As(err, &e) && err != nil {
			t.Errorf("told to stop: %v", err)
		}
	})
}

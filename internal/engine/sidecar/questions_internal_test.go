package sidecar

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// message is a question as the server writes it.
func message(pipeline, role uint32, text string) []byte {
	body := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, pipeline), role)
	body = append(binary.BigEndian.AppendUint64(body, 1<<60), text...)
	mac := hmac.New(sha256.New, walmsg.QuestionKey([]byte("secret")))
	mac.Write(body)
	return append(mac.Sum([]byte{1}), body...)
}

// A stream that starts again reads questions that were answered before: who asks now is not refused for them.
func TestQuestions_OfBeforeCostWhoAsksNowNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		qs := newQuestions([]byte("secret"))
		for i := range 10_000 {
			qs.hand(message(1, 10, fmt.Sprint("before ", i)), true)
		}
		const now = 20
		for i := range now {
			qs.hand(message(1, 10, fmt.Sprint("now ", i)), false)
		}
		if n := len(qs.known); n != mostOfARole/2+now || qs.stats.Refused.Load() != 0 || len(qs.refused) != 0 {
			t.Errorf("%d wait, %d are refused, %d are told so", n, qs.stats.Refused.Load(), len(qs.refused))
		}
		if left := qs.roles[10].left; left != askBurst-now {
			t.Errorf("the role may ask %v more", left)
		}
	})
}

// Whoever asks too much waits for himself: others are answered as if he were not there.
func TestQuestions_AFloodCostsWhoeverMakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		qs := newQuestions([]byte("secret"))
		for i := range 10_000 {
			qs.hand(message(1, 10, fmt.Sprint("flood ", i)), false)
			qs.hand(message(1, 10, "flood 0"), false)
		}
		qs.hand([]byte("a stranger's"), false)
		qs.hand(message(1, 11, "one question"), false)
		if n := len(qs.known); n != mostOfARole+1 {
			t.Errorf("%d wait, want %d", n, mostOfARole+1)
		}
		if qs.stats.Refused.Load() != 10_000-mostOfARole || qs.stats.Forged.Load() != 1 || len(qs.refused) != mostRefused {
			t.Errorf("refused %d, forged %d, %d are told", qs.stats.Refused.Load(), qs.stats.Forged.Load(), len(qs.refused))
		}
		told, ok := qs.take()
		if !ok || len(told.refused) != mostRefused {
			t.Fatalf("%d are told that they are refused", len(told.refused))
		}
		first, ok := qs.take()
		if !ok || len(first.questions) != askedTogether || first.questions[1].Text != "one question" {
			t.Fatalf("%d are answered together; the other role's is not the second", len(first.questions))
		}
		if more, ok := qs.take(); ok {
			t.Errorf("of a pipeline that is being answered more is taken: %+v", more)
		}
		qs.hand(message(2, 11, "of another pipeline"), false)
		if other, ok := qs.take(); !ok || other.pipeline != 2 {
			t.Error("a pipeline waits for another")
		}
		qs.done(told)
		qs.done(first)
		second, ok := qs.take()
		if !ok || len(second.questions) != askedTogether {
			t.Errorf("then %d", len(second.questions))
		}
		qs.done(second)
		last, _ := qs.take()
		if len(last.questions) != mostOfARole+1-2*askedTogether {
			t.Errorf("and then %d", len(last.questions))
		}
		qs.done(last)
		if _, ok := qs.take(); ok || len(qs.known) != 1 || len(qs.pipelines) != 1 {
			t.Errorf("%d are known when all but one are answered", len(qs.known))
		}

		// The rate is his own, and comes back.
		asks := func(role uint32, n int) (allowed int64) {
			before := qs.stats.Refused.Load()
			for i := range n {
				qs.hand(message(3, role, fmt.Sprint(time.Now(), i)), false)
				if a, ok := qs.take(); ok {
					qs.done(a)
				}
			}
			return int64(n) - (qs.stats.Refused.Load() - before)
		}
		if got := asks(10, 1000); got != askBurst-mostOfARole {
			t.Errorf("%d more at once, want %d", got, askBurst-mostOfARole)
		}
		if got := asks(12, 100); got != 100 {
			t.Errorf("another role may ask %d times of 100", got)
		}
		<-time.After(time.Second)
		if got := asks(10, 1000); got != askRate {
			t.Errorf("%d after a second, want %d", got, askRate)
		}
		<-time.After(time.Minute)
		if asks(13, 1); len(qs.roles) != 2 { // and 11, whose question is not answered yet
			t.Errorf("%d roles are remembered", len(qs.roles))
		}
	})
}

// A mistake of ours in one answer is its end and nothing else: who asked asks again.
func TestP5_APanicInAnAnswerIsItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Options{Log: slog.New(slog.DiscardHandler)}) // without a pool to ask
		qs := newQuestions([]byte("secret"))
		ended := make(chan error, 1)
		go func() { ended <- s.answers(ctx, qs) }()
		qs.hand(message(1, 10, "a text"), false)
		synctest.Wait()
		if n := s.Panics(restart.Answers); n != 1 || len(qs.known) != 0 {
			t.Errorf("%d panics, %d questions are under way", n, len(qs.known))
		}
		qs.hand(message(1, 10, "a text"), false)
		synctest.Wait()
		if n := s.Panics(restart.Answers); n != 2 {
			t.Errorf("asked again: %d panics", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

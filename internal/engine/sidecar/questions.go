package sidecar

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// What keeps questions from costing others anything. A role is one that has logged in.
const (
	askedTogether = 32   // questions of a pipeline that are embedded at once
	mostOfARole   = 64   // that wait or are being answered
	mostQuestions = 1024 // of all roles
	mostRefused   = 64   // that are told so; one more waits in vain
	// bytes of texts to be scored that a role, and all of them, have waiting
	mostOfARoleBytes, mostBytes = 16 << 20, 64 << 20
	textsOfOne                  = 10 // so many of them count as a question more

	askRate  = 100 // new questions of a role in a second, in the long run
	askBurst = 200
)

// Asked counts what became of questions. Its fields may be read at any time.
type Asked struct {
	Read                      atomic.Int64 // once for each time that somebody asks
	Answered, Failed, Refused atomic.Int64
	Expired                   atomic.Int64 // nobody waits any more, or they were answered a moment ago
	Forged                    atomic.Int64 // messages that are no questions of this installation
}

// questions wait here for an answer. Who hands one in never waits. Roles take turns, so that one that asks a lot waits
// for itself.
type questions struct {
	key   []byte
	stats Asked
	ready chan struct{} // something may be taken

	mu        sync.Mutex
	bytes     int // of all that wait or are being answered
	pipelines map[topic]*turns
	known     map[questionID]struct{} // those that wait or are being answered
	roles     map[uint32]*allowance
	refused   []questionID
	refusing  bool // some are being told
}

type questionID = [32]byte

// topic is what is answered in turns: vectors and scores keep each other waiting no longer than their models do.
type topic struct {
	pipeline int32
	scores   bool
}

// turns are the questions about one pipeline, by role.
type turns struct {
	order   []uint32 // roles that have some; the first is next
	waiting map[uint32][]walmsg.Question
	busy    bool // some are being answered
}

// allowance is how much a role may ask.
type allowance struct {
	left    float64
	at      time.Time // when that was so
	waiting int
	bytes   int
}

// asked is what is answered together.
type asked struct {
	topic

	questions []walmsg.Question
	refused   []questionID // in place of these: too many were asked
}

func newQuestions(secret []byte) *questions {
	return &questions{
		key: walmsg.QuestionKey(secret), ready: make(chan struct{}, 1),
		pipelines: map[topic]*turns{}, known: map[questionID]struct{}{}, roles: map[uint32]*allowance{},
	}
}

// hand takes the content of a message. One of before this session of the stream was mostly answered long ago, and comes
// again with many others: it takes nothing of what its role may ask now. Anyone who still waits for it asks again.
func (qs *questions) hand(content []byte, before bool) {
	q, err := walmsg.ReadQuestion(qs.key, content)
	if err != nil {
		qs.stats.Forged.Add(1)
		return
	}
	qs.stats.Read.Add(1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if _, twice := qs.known[q.ID]; twice {
		return
	}
	a, bytes, most := qs.allowedLocked(q.Role, time.Now()), q.Bytes(), mostOfARole
	if before {
		most /= 2
	}
	if a.left < 1 || a.waiting >= most || len(qs.known) >= mostQuestions ||
		len(q.Texts) > 0 && (a.bytes+bytes > mostOfARoleBytes || qs.bytes+bytes > mostBytes) {
		if before {
			return
		}
		qs.stats.Refused.Add(1)
		if len(qs.refused) < mostRefused {
			qs.refused = append(qs.refused, q.ID)
			qs.signal()
		}
		return
	}
	if !before {
		a.left -= 1 + float64(len(q.Texts))/textsOfOne
	}
	a.waiting++
	a.bytes += bytes
	qs.bytes += bytes
	qs.known[q.ID] = struct{}{}
	about := topic{q.Pipeline, len(q.Texts) > 0}
	t := qs.pipelines[about]
	if t == nil {
		t = &turns{waiting: map[uint32][]walmsg.Question{}}
		qs.pipelines[about] = t
	}
	if len(t.waiting[q.Role]) == 0 {
		t.order = append(t.order, q.Role)
	}
	t.waiting[q.Role] = append(t.waiting[q.Role], q)
	qs.signal()
}

// allowedLocked returns what a role may ask now. Of one that has not asked for a while nothing is kept.
func (qs *questions) allowedLocked(role uint32, now time.Time) *allowance {
	a := qs.roles[role]
	if a != nil {
		a.left, a.at = min(a.left+askRate*now.Sub(a.at).Seconds(), askBurst), now
		return a
	}
	for other, o := range qs.roles {
		if o.waiting == 0 && o.left+askRate*now.Sub(o.at).Seconds() >= askBurst {
			delete(qs.roles, other)
		}
	}
	a = &allowance{left: askBurst, at: now}
	qs.roles[role] = a
	return a
}

func (qs *questions) signal() {
	sleep.Wake(qs.ready)
}

// take returns what can be answered now, which done ends; false: nothing can. Of a pipeline some are answered at a
// time: those that come meanwhile are answered together, and a model that takes its time keeps no other waiting.
func (qs *questions) take() (asked, bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(qs.refused) > 0 && !qs.refusing {
		a := asked{refused: qs.refused}
		qs.refused, qs.refusing = nil, true
		return a, true
	}
	for about, t := range qs.pipelines {
		if t.busy || len(t.order) == 0 {
			continue
		}
		a := asked{topic: about}
		for len(t.order) > 0 && len(a.questions) < askedTogether {
			role := t.order[0]
			t.order = t.order[1:]
			a.questions = append(a.questions, t.waiting[role][0])
			if t.waiting[role] = t.waiting[role][1:]; len(t.waiting[role]) > 0 {
				t.order = append(t.order, role)
			} else {
				delete(t.waiting, role)
			}
		}
		t.busy = true
		return a, true
	}
	return asked{}, false
}

// done ends what take has begun.
func (qs *questions) done(a asked) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	defer qs.signal()
	if a.refused != nil {
		qs.refusing = false
		return
	}
	for i := range a.questions {
		q := &a.questions[i]
		delete(qs.known, q.ID)
		role := qs.roles[q.Role]
		role.waiting--
		role.bytes -= q.Bytes()
		qs.bytes -= q.Bytes()
	}
	if t := qs.pipelines[a.topic]; len(t.order) > 0 {
		t.busy = false
	} else {
		delete(qs.pipelines, a.topic)
	}
}

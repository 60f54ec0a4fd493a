package sidecar

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
)

// Limits that keep questions from affecting other roles. A role is a session's login role.
const (
	askedTogether = 32   // questions of a pipeline embedded in one call
	mostOfARole   = 64   // of a role, waiting or being answered
	mostQuestions = 1024 // of all roles
	mostRefused   = 64   // that get an answer; further ones time out
	// bytes of waiting texts to score, of one role and of all
	mostOfARoleBytes, mostBytes = 16 << 20, 64 << 20
	textsOfOne                  = 10 // texts to score that count as one more question

	askRate  = 100 // new questions per second and role, on average
	askBurst = 200
)

// Asked counts the outcomes of questions. Its fields may be read at any time.
type Asked struct {
	Read                      atomic.Int64 // every received question, repetitions included
	Answered, Failed, Refused atomic.Int64
	Expired                   atomic.Int64 // no session waits any more, or it was just answered
	Forged                    atomic.Int64 // messages that are not valid questions of this installation
}

// questions is the queue of unanswered questions. Adding one never blocks. Roles take turns, so that a busy role delays
// only itself.
type questions struct {
	key   []byte
	stats Asked
	ready chan struct{} // signals that something may be taken

	mu        sync.Mutex
	bytes     int // of all waiting and current questions
	pipelines map[topic]*turns
	known     map[questionID]struct{} // waiting and current questions
	roles     map[uint32]*allowance
	refused   []questionID
	refusing  bool // some are being answered
}

type questionID = [32]byte

// topic is a separate line of questions, so that vectors and scores do not wait for each other's model.
type topic struct {
	pipeline int32
	scores   bool
}

// turns are the questions on one topic, by role.
type turns struct {
	order   []uint32 // roles with questions; the first is next
	waiting map[uint32][]walmsg.Question
	busy    bool // some are being answered
}

// allowance is how much a role may still ask.
type allowance struct {
	left    float64
	at      time.Time // time of left
	waiting int
	bytes   int
}

// asked are questions answered together.
type asked struct {
	topic

	questions []walmsg.Question
	refused   []questionID // instead of questions: too many were asked
}

func newQuestions(secret []byte) *questions {
	return &questions{
		key: walmsg.QuestionKey(secret), ready: make(chan struct{}, 1),
		pipelines: map[topic]*turns{}, known: map[questionID]struct{}{}, roles: map[uint32]*allowance{},
	}
}

// hand takes the content of a message. A question from before this session was probably answered already, and arrives
// with many others: it does not use up its role's allowance. A session that still waits asks again.
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

// allowedLocked returns a role's allowance. It deletes full ones, of roles that have not asked for a while.
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

// take returns questions that can be answered now, until done is called; false: none. Each topic has one call at a
// time: questions that arrive meanwhile are answered together, and a slow model delays no other.
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

// done ends the call that take started.
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

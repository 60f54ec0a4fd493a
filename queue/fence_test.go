package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The fence as a model, without a database: one row, its ledger entry, its task, workers, a streamer, crashes, and
// commits that are in the WAL before anybody sees them. ADR 7 says what each rule stands for; a rule that is switched
// off must be missed.
type fence struct {
	versions bool // a write-back compares the version of the entry it read
	absent   bool // a worker that read no entry must still hold its lease
	gen      bool // a task ends only if its gen is what was leased
	visible  bool // a task is leased only when its last change is visible
	epoch    bool // nothing is written under a lease of an older epoch
	screen   bool // a change is worked at once only where no task names its row
	stream   bool // what is worked at once is written only under the epoch of who streams
	unique   bool // an epoch is given out once, though the server forgets which it has given
	late     bool // what is worked at once is written only if nothing was queued since it was read
}

type fenceState struct {
	f fence

	row     int   // committed version; 0: deleted. Negative numbers do not occur
	seen    int   // version that others see: less than row while a commit waits
	log     []int // versions in the WAL that are not queued yet
	last    int   // counts versions
	entry   int   // version of the row that the ledger's entry was written from; 0: no entry
	stamp   int   // xmin of the entry
	stamps  int
	task    *fenceTask
	epoch   int
	workers [2]*look
	stream  int   // epoch of who streams
	direct  *look // what he works at once: the first of log
	zombie  *look // of one who streamed before and does not know that he does no longer, or that was given up
	queued  int   // counts what the stream made a task
}

type fenceTask struct {
	id, gen, version int // version: of the last change
	holder           int // worker that leases it, -1: none
}

// look is what a worker holds.
type look struct {
	id, gen, epoch int
	read           bool
	row            int // version that was read
	stamp          int // of the entry; 0: there was none
	version        int // of the change, where there is no task
	queued         int // of the state, when the change was screened
}

var fenceIDs int

// open adds a change to the task, or makes one.
func (s *fenceState) open(version int) {
	if s.task == nil {
		fenceIDs++
		s.task = &fenceTask{id: fenceIDs, holder: -1}
	}
	s.task.gen++
	s.task.version = version
}

// write finishes a look. It returns what it did wrong.
func (s *fenceState) write(n int) error {
	l := s.workers[n]
	s.workers[n] = nil
	holds := s.task != nil && s.task.id == l.id && s.task.holder == n
	defer func() {
		if s.task != nil && s.task.id == l.id && s.task.holder == n {
			s.task.holder = -1
		}
	}()
	if s.f.epoch && l.epoch != s.epoch {
		return nil
	}
	if s.f.versions && s.stamp != l.stamp {
		return nil
	}
	if s.f.absent && !holds {
		return nil
	}
	if l.row == 0 {
		s.entry, s.stamp = 0, 0
	} else {
		if l.row < s.entry {
			return fmt.Errorf("version %d was written over %d", l.row, s.entry)
		}
		s.stamps++
		s.entry, s.stamp = l.row, s.stamps
	}
	if s.task != nil && s.task.id == l.id && (!s.f.gen || s.task.gen == l.gen) {
		s.task = nil
	}
	return nil
}

// visible reports whether a change that was read from the WAL is seen by everybody.
func (s *fenceState) visible(version int) bool { return version == s.seen || version != s.row }

// writeDirect finishes what was worked at once, and reports whether the change needs no task any more.
func (s *fenceState) writeDirect(l *look) (done bool, err error) {
	switch {
	case !l.read, s.f.stream && l.epoch != s.stream, s.f.versions && s.stamp != l.stamp, s.f.late && l.queued != s.queued:
		return false, nil
	case l.row == 0:
		s.entry, s.stamp = 0, 0
		return true, nil
	case l.row < s.entry:
		return false, fmt.Errorf("version %d was written at once over %d", l.row, s.entry)
	}
	s.stamps++
	s.entry, s.stamp = l.row, s.stamps
	return true, nil
}

// endDirect ends what is worked at once: done, or a task.
func (s *fenceState) endDirect() error {
	l := s.direct
	s.direct = nil
	done, err := s.writeDirect(l)
	if !done && err == nil {
		s.enqueue(l.version)
	}
	return err
}

// enqueue is open by the stream.
func (s *fenceState) enqueue(version int) {
	s.queued++
	s.open(version)
}

// settle does all that is left to do, as one worker would who is never disturbed.
func (s *fenceState) settle() error {
	s.seen = s.row
	if s.direct != nil {
		if err := s.endDirect(); err != nil {
			return err
		}
	}
	for _, v := range s.log {
		s.enqueue(v)
	}
	s.log = nil
	if s.zombie != nil {
		if _, err := s.writeDirect(s.zombie); err != nil {
			return err
		}
	}
	for n := range s.workers {
		if s.workers[n] != nil {
			if !s.workers[n].read {
				s.look(n)
			}
			if err := s.write(n); err != nil {
				return err
			}
		}
	}
	for range 3 {
		if s.task != nil {
			s.workers[0] = &look{id: s.task.id, gen: s.task.gen, epoch: s.epoch}
			s.task.holder = 0
			s.look(0)
			if err := s.write(0); err != nil {
				return err
			}
		}
	}
	if s.task != nil {
		return errors.New("a task that nobody can end")
	}
	if s.entry != s.row {
		return fmt.Errorf("the row is at %d, its vector at %d", s.row, s.entry)
	}
	return nil
}

func (s *fenceState) look(n int) {
	l := s.workers[n]
	l.read, l.row, l.stamp = true, s.seen, s.stamp
}

// fenceSteps are what may happen next; what workers do happens more often.
var fenceSteps = []string{
	"update", "delete", "held", "release", "stream", "stream", "lease", "lease", "lease", "look", "look", "look", "write",
	"write", "lose", "scan", "failover", "screen", "screen", "look at once", "look at once", "write at once", "takeover",
	"zombie", "give up", "give up", "delete",
}

// history runs one, as choose decides, and returns what went wrong.
func (f fence) history(choose func(n int) int) error {
	s := &fenceState{f: f}
	for range 60 {
		n := choose(2)
		switch fenceSteps[choose(len(fenceSteps))] {
		case "update", "held":
			held := s.seen != s.row
			s.last++
			s.row = s.last
			s.log = append(s.log, s.row)
			if !held && choose(2) == 1 {
				s.seen = s.row
			}
		case "delete":
			if s.seen == s.row && s.row != 0 {
				s.row, s.seen = 0, 0
				s.log = append(s.log, 0)
			}
		case "release":
			s.seen = s.row
		case "screen":
			if len(s.log) > 0 && s.direct == nil && (!s.f.screen || s.task == nil) && (!s.f.visible || s.visible(s.log[0])) {
				s.direct = &look{epoch: s.stream, version: s.log[0], queued: s.queued}
				s.log = s.log[1:]
			}
		case "look at once":
			if l := s.direct; l != nil && !l.read {
				l.read, l.row, l.stamp = true, s.seen, s.stamp
			}
		case "write at once":
			if s.direct != nil && s.direct.read {
				if err := s.endDirect(); err != nil {
					return err
				}
			}
		case "takeover": // he reads again what was not done, and the one before may still write
			s.stream++
			if s.direct != nil {
				s.zombie = s.direct
				s.log = append([]int{s.direct.version}, s.log...)
				s.direct = nil
			}
		case "give up": // the statement may still reach the server
			if s.direct != nil {
				s.zombie = s.direct
				s.direct = nil
				s.enqueue(s.zombie.version)
			}
		case "zombie":
			if s.zombie != nil {
				if _, err := s.writeDirect(s.zombie); err != nil {
					return err
				}
				s.zombie = nil
			}
		case "stream":
			if len(s.log) > 0 && s.direct == nil { // in the order of the WAL
				s.enqueue(s.log[0])
				s.log = s.log[1:]
			}
		case "lease":
			if s.task == nil || s.task.holder >= 0 || s.workers[n] != nil || s.f.visible && s.task.version != s.seen &&
				s.task.version == s.row {
				continue
			}
			s.task.holder = n
			s.workers[n] = &look{id: s.task.id, gen: s.task.gen, epoch: s.epoch}
		case "look":
			if l := s.workers[n]; l != nil && !l.read {
				s.look(n)
			}
		case "write":
			if l := s.workers[n]; l != nil && l.read {
				if err := s.write(n); err != nil {
					return err
				}
			}
		case "lose": // the lease runs out; its worker may still write
			if s.task != nil {
				s.task.holder = -1
			}
		case "scan":
			if s.seen == s.row && s.entry != s.row {
				s.open(s.row)
			}
		case "failover": // the last change is lost, with all that was not heard of; who read it may live on
			if s.row != s.entry && s.seen == s.row && s.last > 0 {
				s.row, s.seen, s.log = s.entry, s.entry, nil
				s.direct, s.zombie = nil, s.direct
				if s.f.unique { // else it forgets that it was raised, and raises it to what it was
					s.stream++
				}
				s.epoch++ // every row is compared at once: this one is found to be as it should
				if s.f.epoch && s.task != nil {
					s.task.holder = -1
				}
			}
		}
	}
	return s.settle()
}

// TestP3_TheFenceHolds checks the rules together, and that none of them is there for nothing.
func TestP3_TheFenceHolds(t *testing.T) {
	t.Parallel()
	whole := fence{
		versions: true, absent: true, gen: true, visible: true, epoch: true, screen: true, stream: true, unique: true,
		late: true,
	}
	rapid.Check(t, func(t *rapid.T) { // for an example that is short
		if err := whole.history(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }); err != nil {
			t.Fatal(err)
		}
	})
	const histories = 200_000
	random := func(f fence) error {
		r := rand.New(rand.NewPCG(1, 2))
		for range histories {
			if err := f.history(r.IntN); err != nil {
				return err
			}
		}
		return nil
	}
	if err := random(whole); err != nil {
		t.Error(err)
	}
	for name, off := range map[string]func(f *fence){
		"the lease where there is no entry": func(f *fence) { f.absent = false },
		"gen":                               func(f *fence) { f.gen = false },
		"visibility":                        func(f *fence) { f.visible = false },
		"the epoch":                         func(f *fence) { f.epoch = false },
		"versions and leases":               func(f *fence) { f.versions, f.absent = false, false },
		"the screening for open tasks":      func(f *fence) { f.screen = false },
		"the epoch of who streams":          func(f *fence) { f.stream = false },
		"epochs that come once":             func(f *fence) { f.unique = false },
		"the end of what was given up":      func(f *fence) { f.late = false },
	} {
		f := whole
		off(&f)
		if err := random(f); err == nil {
			t.Errorf("without %s no history goes wrong: the rule does nothing, or the model does not show it", name)
		}
	}
}

package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Facts are what is known of a pipeline.
type Facts struct {
	Name       string
	ID         int32
	Status     string // as the catalogue was found: "active", or a Code
	Detail     string // why it is not active, with the way out
	Table      string // as it is called now, quoted
	ReplacedBy string // another table that has taken its name, quoted
	Dropped    bool   // the table is gone, whatever Status says
	Paused     bool
	// AllPaused: by the switch over all pipelines. PausedNames are the pipelines that are paused by their names.
	AllPaused   bool
	PausedNames []string
	Closed      bool           // it is outside of its hours
	Active      pipeline.Hours // these
	Slot        Slot
	Sidecars    []Sidecar // that run
	// Unacknowledged: the streamer does not route the pipeline as it is defined now.
	Unacknowledged bool
	Scan           Scan
	Open           int64    // rows that wait, are being embedded, or are to be tried again
	Retrying       int64    // of them those that failed and are to be tried again
	Aside          int64    // changes that cannot be queued, because somebody holds what they need
	Holders        []string // open transactions that may be his
	Failed         int64    // dead letters
	Cancelled      int64    // rows that somebody took out of the queue
}

// Slot is what is known of a slot.
type Slot struct {
	Name        string
	Publication string
	Exists      bool
	Lost        bool // wal_status
	Active      bool // somebody holds it
	Making      bool // it is not ready yet
	Holder      string
	Published   bool     // the publication is there
	OtherServer bool     // it was set up on another one: the data was restored or copied
	Elsewhere   string   // the database of this server that the slot belongs to, if it is another
	Own         string   // a name for a slot of this database's own
	Blockers    []string // whom the making of the slot waits for
}

// Sidecar is what one that runs says of itself.
type Sidecar struct {
	Name     string
	Stream   Stream
	Detail   string // why its stream is not what it should be
	Problems map[int32]Problem
}

// Stream is what a sidecar does about the slot.
type Stream string

// The states of a stream.
const (
	Starting  Stream = "starting"
	Streaming Stream = "streaming"
	Standby   Stream = "standby"
	Making    Stream = "making" // the slot
	Stuck     Stream = "stuck"
	NoStream  Stream = "none" // it works the queue alone
)

// Problem is why a sidecar does not work a pipeline.
type Problem struct {
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Scan is the state of a pipeline's scan.
type Scan struct {
	Phase    string // waiting, rows, orphans, done
	Reason   string
	First    bool // no scan has ended yet: it is the backfill
	Seen     int64
	Expected int64
	Rate     float64  // rows a second; 0: not known
	Blockers []string // whom it waits for
}

// Of returns where a pipeline stands.
func Of(f Facts) State {
	for _, look := range []func(*Facts) (State, bool){inTables, inSlot, switched, inSidecars, inWork} {
		if s, is := look(&f); is {
			return s
		}
	}
	return State{Code: UpToDate, Reason: "every row that is known has its vector"}
}

func inTables(f *Facts) (State, bool) {
	switch {
	case f.Slot.OtherServer:
		return State{
			Copied, OtherServer,
			"if this copy shall live on its own, embedsidecar init --adopt, with its pipelines configured, makes a new slot and compares every row",
		}, true
	case f.Slot.Elsewhere != "":
		return State{
			Copied, fmt.Sprintf("slot %s is that of database %s, of which this one is a copy: all databases of a server share the names of slots", f.Slot.Name, f.Slot.Elsewhere),
			"embedsidecar init --adopt --slot " + f.Slot.Own +
				", with its pipelines configured, makes one of its own and compares every row",
		}, true
	case f.Dropped:
		return Gone(f.Table, f.ReplacedBy), true
	}
	switch code := Code(f.Status); code {
	case "active", "":
	case Missing, Misconfigured, Unpublished:
		return State{code, f.Detail, ""}, true
	default:
		return State{Misconfigured, strings.TrimPrefix(f.Status+": "+f.Detail, ": "), ""}, true
	}
	switch {
	case f.ReplacedBy != "":
		return Moved(f.Table, f.ReplacedBy), true
	case !f.Slot.Published:
		return State{
			Unpublished, fmt.Sprintf("the publication %q of slot %s does not exist, so changes are not seen", f.Slot.Publication,
				f.Slot.Name),
			"embedsidecar init makes it again",
		}, true
	}
	return State{}, false
}

// OtherServer says that the data came from another server.
const OtherServer = "this server is not the one that was set up: the data was restored or copied elsewhere"

// Anew is the way out of a slot that cannot go on.
const Anew = "embedsidecar run makes it anew and compares every row; " +
	"where on_lost is stop: embedsidecar run --set slot.on_lost=reconcile, once"

// Moved is the state of a pipeline whose table has another name now, while another table has the old one.
func Moved(table, namesake string) State {
	return State{
		Replaced, fmt.Sprintf("its table is called %s now, and what is called %s is another one, whose rows get no vectors",
			table, namesake),
		"rename them back, or embedsidecar init with the pipeline configured, or the next run, moves it to the new one",
	}
}

// Gone is the state of a pipeline whose table was dropped. namesake is another table that has its name by now; "":
// there is none.
func Gone(table, namesake string) State {
	if namesake == "" {
		return State{
			Missing, "the source table " + table + " was dropped",
			"bring it back, and embedsidecar init, or the next run, takes it over; embedsidecar uninstall takes the pipeline away",
		}
	}
	return State{
		Missing, "the source table was dropped, and what is called " + namesake +
			" is another one, whose rows get no vectors",
		"embedsidecar init with the pipeline configured, or the next run, takes it over",
	}
}

func inSlot(f *Facts) (State, bool) {
	making := slices.IndexFunc(f.Sidecars, func(s Sidecar) bool { return s.Stream == Making })
	switch {
	case f.Slot.Making || making >= 0 && !f.Slot.Exists:
		reason := fmt.Sprintf("slot %s is being made, and the server waits for %s", f.Slot.Name, whom(f.Slot.Blockers))
		return State{SlotWaiting, reason, "let them end, or end them; until then changes are not queued"}, true
	case !f.Slot.Exists:
		return State{
			SlotLost, fmt.Sprintf("slot %s is gone, so changes are not seen", f.Slot.Name),
			Anew,
		}, true
	case f.Slot.Lost:
		return State{
			SlotLost, fmt.Sprintf("slot %s is lost: the server has removed WAL that it needed", f.Slot.Name),
			Anew,
		}, true
	}
	return State{}, false
}

// resume is what lets pipelines go on: this one, and with it all that are paused.
func (f *Facts) resume() string {
	const all = "embedsidecar resume"
	names := make([]string, len(f.PausedNames))
	for i, name := range f.PausedNames {
		names[i] = Quoted(name)
	}
	byName := all + " " + strings.Join(names, " ")
	switch {
	case !f.AllPaused && len(names) == 0: // nobody says how it was paused
		return all + " " + Quoted(f.Name) + ", or where all are paused " + all
	case len(names) == 0:
		return all
	case f.AllPaused:
		return all + ", which ends the pause of all, and " + byName
	}
	return byName
}

func switched(f *Facts) (State, bool) {
	const queued = ": changes are queued, nothing is embedded"
	switch {
	case f.Paused:
		return State{Paused, "paused" + queued + waiting(f), f.resume()}, true
	case f.Closed:
		return State{
			OutsideHours, Outside(f.Active) + queued + waiting(f),
			"embedsidecar resume " + Quoted(f.Name) + " --for 1h has it work now",
		}, true
	}
	return State{}, false
}

// Outside says that it is not one of a pipeline's hours.
func Outside(active pipeline.Hours) string {
	if active == pipeline.Manual {
		return "works only when somebody asks (active: manual)"
	}
	return "outside of its hours (" + string(active) + ")"
}

func inSidecars(f *Facts) (State, bool) {
	if len(f.Sidecars) == 0 {
		if f.Slot.Active {
			return State{StandbyOnly, fmt.Sprintf("slot %s is held by %s, and no sidecar is known to run", f.Slot.Name,
				cmp.Or(f.Slot.Holder, "somebody")), "embedsidecar run"}, true
		}
		return State{NoSidecar, fmt.Sprintf("no sidecar runs for slot %s, and the server keeps WAL for it%s", f.Slot.Name,
			waiting(f)), "embedsidecar run"}, true
	}
	is := func(want Stream) int {
		return slices.IndexFunc(f.Sidecars, func(s Sidecar) bool { return s.Stream == want })
	}
	if is(Streaming) < 0 || !f.Slot.Active {
		if at := is(Stuck); at >= 0 {
			return State{StreamStuck, f.Sidecars[at].Name + " cannot stream " + f.Sidecars[at].Detail, ""}, true
		}
		// One says that it reads the slot, or is about to. Who holds the slot is the server's to say.
		at := max(is(Streaming), is(Starting))
		switch {
		case at >= 0 && !f.Slot.Active:
			return State{StreamStuck, fmt.Sprintf("%s runs, and nobody reads slot %s%s", f.Sidecars[at].Name, f.Slot.Name,
				waiting(f)), "its log says why"}, true
		case at < 0 && f.Slot.Active:
			return State{StandbyOnly, fmt.Sprintf(
				"every sidecar stands by, because slot %s is held by %s: changes are not queued", f.Slot.Name,
				cmp.Or(f.Slot.Holder, "somebody else")), "end it"}, true
		case at < 0:
			return State{NoSidecar, fmt.Sprintf("no sidecar streams from slot %s, and the server keeps WAL for it%s",
				f.Slot.Name, waiting(f)), "embedsidecar run"}, true
		}
	}
	return problem(f)
}

// problem is what keeps every sidecar that runs from this pipeline; one that can work it is enough.
func problem(f *Facts) (State, bool) {
	var worst *Problem
	for _, s := range f.Sidecars {
		p, has := s.Problems[f.ID]
		if !has {
			return State{}, false
		}
		if worst == nil || slices.Index(Codes(), string(p.Code)) < slices.Index(Codes(), string(worst.Code)) {
			worst = &p
		}
	}
	s := State{Code: worst.Code, Reason: worst.Detail}
	switch worst.Code {
	case PluginUnknown:
		s.WayOut = "name it in the configuration of the sidecar, or install it, and start the sidecar again"
	case PluginDown:
		s.WayOut = "embedsidecar check tells more"
	case OtherModel:
		s.WayOut = "start the sidecar with the model as it was, or make a second pipeline"
	case Failing:
		s.WayOut = "embedsidecar tasks list --state failed " + Quoted(f.Name) + " shows the errors"
	case Disabled:
		s.WayOut = "start one that works: without enabled: false, and not with --role stream alone"
	default:
		if !slices.Contains(Codes(), string(worst.Code)) {
			s.Code = Misconfigured // what a newer program says
		}
	}
	s.Reason += waiting(f)
	return s, true
}

func inWork(f *Facts) (State, bool) {
	switch {
	case f.Unacknowledged:
		return State{
			Unacknowledged, "the sidecar that streams has not taken up the pipeline as it is now defined",
			"wait; within about 10 s it has",
		}, true
	case f.Scan.Phase == "waiting" && len(f.Scan.Blockers) > 0:
		return State{ScanWaiting, fmt.Sprintf("rows are to be compared (%s) when what was open then has ended: %s",
			f.Scan.Reason, whom(f.Scan.Blockers)), "let them end, or end them"}, true
	case f.Scan.Phase != "done" && f.Scan.Phase != "":
		code, does := Comparing, "compares every row"
		if f.Scan.First {
			code, does = Backfill, "embeds the rows that are there"
		}
		return State{code, fmt.Sprintf("%s (%s)%s", does, f.Scan.Reason, f.Scan.progress()), ""}, true
	case f.Aside > 0:
		return State{QueueHeld, fmt.Sprintf("%d of its changes cannot be queued, because of %s%s", f.Aside,
			whom(f.Holders), waiting(f)), "let them end, or end them"}, true
	case f.Open > 0 && f.Open == f.Retrying:
		return State{
			Working, fmt.Sprintf("%s failed and will be tried again", rows(f.Open)),
			"embedsidecar tasks list --state failed " +
				Quoted(f.Name) + " shows the errors",
		}, true
	case f.Open > 0:
		return State{Working, rows(f.Open) + " left to embed", ""}, true
	case f.Failed > 0:
		return State{
			RowsFailed, rows(f.Failed) + " could not be embedded",
			"embedsidecar tasks list --state failed " + Quoted(f.Name) +
				" names them and why; once that is mended, embedsidecar tasks retry " + Quoted(f.Name) +
				" tries again, or embedsidecar tasks discard gives them up",
		}, true
	case f.Cancelled > 0:
		return State{RowsCancelled, rows(f.Cancelled) + " cancelled by somebody", "embedsidecar tasks list " +
			Quoted(f.Name) + " --state cancelled names them, embedsidecar tasks requeue " + Quoted(f.Name) + " takes them back"}, true
	}
	return State{}, false
}

// progress words how far a scan is.
func (s Scan) progress() string {
	switch {
	case s.Phase == "waiting":
		return ", about to begin"
	case s.Phase == "orphans":
		return fmt.Sprintf(", %s seen, now what is left of rows that are gone", rows(s.Seen))
	case s.Expected <= 0:
		return ", " + rows(s.Seen) + " seen"
	}
	words := fmt.Sprintf(", %d of about %s seen", s.Seen, rows(max(s.Expected, s.Seen)))
	if s.Rate > 0 {
		words += fmt.Sprintf(", %.0f/s", s.Rate)
		if left := s.Left(); left > 0 {
			words += ", about " + left.String() + " to go"
		}
	}
	return words
}

// Left returns about how long the scan will take; 0: nobody knows.
func (s Scan) Left() time.Duration {
	if s.Rate <= 0 || s.Expected <= s.Seen {
		return 0
	}
	return time.Duration(float64(s.Expected-s.Seen) / s.Rate * float64(time.Second)).Round(time.Second)
}

// waiting tells how many rows wait meanwhile.
func waiting(f *Facts) string {
	if f.Open == 0 {
		return ""
	}
	return " (" + rows(f.Open) + " waiting)"
}

func whom(blockers []string) string {
	if len(blockers) == 0 {
		return "transactions that are open"
	}
	return strings.Join(blockers, "; ")
}

// Quoted makes a name one word of a shell.
func Quoted(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func rows(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return strconv.FormatInt(n, 10) + " rows"
}

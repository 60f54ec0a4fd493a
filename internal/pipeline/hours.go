package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Hours say when a pipeline works, as normalized by ParseHours: "" is always, Manual only on request, and anything else
// is a list of weekly windows with their time zone.
type Hours string

// Manual is a pipeline that works only on request.
const Manual Hours = "manual"

const (
	minutesOfDay  = 24 * 60
	minutesOfWeek = 7 * minutesOfDay
	usualZone     = "UTC"
)

var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// window is a time range on some days of the week. If it ends before it begins, it ends on the next day.
type window struct {
	first, last int // weekdays, from 0: Monday; both -1: every day
	from, until int // minutes of the day
}

// ParseHours reads when a pipeline works: "always", "manual", or windows such as "22:00-06:00" or "mon-fri 22:00-06:00,
// sat-sun 00:00-24:00 Europe/Berlin". The default time zone is UTC. It does not check that the server knows the zone.
func ParseHours(s string) (Hours, error) {
	switch s = strings.TrimSpace(s); s {
	case "always":
		return "", nil
	case string(Manual):
		return Manual, nil
	}
	windows, zone, err := parseHours(s)
	if err != nil {
		return "", err
	}
	words := lists.Map(windows, func(w window) string { return w.String() })
	return Hours(strings.Join(words, ", ") + " " + zone), nil
}

func parseHours(s string) (windows []window, zone string, err error) {
	zone = usualZone
	parts := strings.Split(s, ",")
	last := strings.Fields(parts[len(parts)-1])
	if n := len(last); n > 1 && !strings.Contains(last[n-1], ":") {
		zone, last = last[n-1], last[:n-1]
		if !isZone(zone) {
			return nil, "", fmt.Errorf("%q is not the name of a time zone, such as Europe/Berlin", zone)
		}
	}
	parts[len(parts)-1] = strings.Join(last, " ")
	for _, part := range parts {
		w, err := parseWindow(part)
		if err != nil {
			return nil, "", err
		}
		windows = append(windows, w)
	}
	return windows, zone, nil
}

func isZone(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/") == "" &&
		strings.Trim(s[:1], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

func parseWindow(s string) (w window, err error) {
	w.first, w.last = -1, -1
	words := strings.Fields(s)
	if len(words) == 2 {
		first, last, several := strings.Cut(strings.ToLower(words[0]), "-")
		if !several {
			last = first
		}
		w.first, w.last = slices.Index(weekdays, first), slices.Index(weekdays, last)
		if w.first < 0 || w.last < 0 {
			return w, fmt.Errorf("expected a weekday or two, such as sat or mon-fri, not %q", words[0])
		}
		words = words[1:]
	}
	if len(words) != 1 {
		return w, fmt.Errorf("expected always, manual or hours such as 22:00-06:00, not %q", strings.TrimSpace(s))
	}
	from, until, _ := strings.Cut(words[0], "-")
	var errFrom, errUntil error
	w.from, errFrom = parseMinute(from)
	w.until, errUntil = parseMinute(until)
	switch {
	case errFrom != nil || errUntil != nil:
		return w, fmt.Errorf("expected always, manual or hours such as 22:00-06:00, not %q", words[0])
	case w.from == minutesOfDay:
		return w, fmt.Errorf("%s begins at 24:00: say 00:00", words[0])
	case w.from == w.until:
		return w, fmt.Errorf("%s ends when it begins: a whole day is 00:00-24:00", words[0])
	}
	return w, nil
}

func parseMinute(s string) (int, error) {
	hour, minute, _ := strings.Cut(s, ":")
	h, err := strconv.ParseUint(hour, 10, 8)
	m, err2 := strconv.ParseUint(minute, 10, 8)
	of := int(h)*60 + int(m)
	if errors.Join(err, err2) != nil || len(minute) != 2 || len(hour) > 2 || m > 59 || of > minutesOfDay {
		return 0, errors.New("no time of day")
	}
	return of, nil
}

func (w window) String() string {
	words := fmt.Sprintf("%02d:%02d-%02d:%02d", w.from/60, w.from%60, w.until/60, w.until%60)
	switch {
	case w.first < 0:
		return words
	case w.first == w.last:
		return weekdays[w.first] + " " + words
	}
	return weekdays[w.first] + "-" + weekdays[w.last] + " " + words
}

// Minutes returns the minutes of the week within the hours, from Monday 00:00 in their zone, as an int4multirange
// literal; nil: all of them.
func (h Hours) Minutes() *string {
	if h == "" {
		return nil
	}
	var ranges []string
	add := func(from, until int) { ranges = append(ranges, fmt.Sprintf("[%d,%d)", from, until)) }
	windows, _ := h.windows()
	for _, w := range windows {
		long := w.until - w.from
		if long < 0 {
			long += minutesOfDay
		}
		first, days := 0, len(weekdays)
		if w.first >= 0 {
			first, days = w.first, (w.last-w.first+len(weekdays))%len(weekdays)+1
		}
		for day := range days {
			from := (first+day)%len(weekdays)*minutesOfDay + w.from
			add(from, min(from+long, minutesOfWeek))
			if over := from + long - minutesOfWeek; over > 0 {
				add(0, over)
			}
		}
	}
	literal := "{" + strings.Join(ranges, ",") + "}"
	return &literal
}

// Zone is the time zone of the windows.
func (h Hours) Zone() string {
	_, zone := h.windows()
	return zone
}

func (h Hours) windows() ([]window, string) {
	if h == "" || h == Manual {
		return nil, usualZone
	}
	windows, zone, err := parseHours(string(h))
	if err != nil {
		return nil, usualZone // invalid text counts as Manual
	}
	return windows, zone
}

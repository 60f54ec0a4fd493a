package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseHours_OneSpelling(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"always":                  "",
		" manual ":                "manual",
		"22:00-06:00":             "22:00-06:00 UTC {[1320,1800),[2760,3240),[4200,4680),[5640,6120),[7080,7560),[8520,9000),[9960,10080),[0,360)}",
		"mon 0:00-24:00":          "mon 00:00-24:00 UTC {[0,1440)}",
		"Sat-Mon 01:30-02:00 CET": "sat-mon 01:30-02:00 CET {[7290,7320),[8730,8760),[90,120)}",
		"sun 23:00-01:00":         "sun 23:00-01:00 UTC {[10020,10080),[0,60)}",
		"mon-tue 08:00-09:00,  thu 20:00-24:00 Europe/Berlin": "mon-tue 08:00-09:00, thu 20:00-24:00 Europe/Berlin {[480,540),[1920,1980),[5520,5760)}",
	} {
		h, err := ParseHours(given)
		if err != nil {
			t.Errorf("%q: %v", given, err)
			continue
		}
		got := string(h)
		if m := h.Minutes(); m != nil && h != Manual {
			got += " " + *m
		} else if h == Manual && *m != "{}" {
			t.Errorf("manual is %s", *m)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
		if again, err := ParseHours(string(h)); h != "" && (err != nil || again != h) {
			t.Errorf("%q is read as %q, %v", h, again, err)
		}
	}
	for given, want := range map[string]string{
		"":                                 "such as 22:00-06:00",
		"nights":                           "such as 22:00-06:00",
		"22-6":                             "such as 22:00-06:00",
		"22:00-06:00-07:00":                "such as 22:00-06:00",
		"25:00-06:00":                      "such as 22:00-06:00",
		"22:00-24:01":                      "such as 22:00-06:00",
		"22:60-23:00":                      "such as 22:00-06:00",
		"24:00-06:00":                      "say 00:00",
		"06:00-06:00":                      "a whole day is 00:00-24:00",
		"funday 22:00-06:00":               "a weekday or two",
		"mon-fri-sat 22:00-06:00":          "a weekday or two",
		"22:00-06:00 'x'; DROP TABLE docs": "such as 22:00-06:00",
		"22:00-06:00 'x'":                  "not the name of a time zone",
		"manual, 22:00-06:00":              "such as 22:00-06:00",
		"22:00-06:00,":                     "such as 22:00-06:00",
	} {
		if h, err := ParseHours(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %q", given, h, err, want)
		}
	}
}

// With any windows, a minute of the week is within the hours if and only if a window contains it that began on one of
// its days.
func TestParseHours_PropertyMinutesAreThoseOfTheWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, last := rapid.IntRange(0, 6).Draw(t, "first"), rapid.IntRange(0, 6).Draw(t, "last")
		from, until := rapid.IntRange(0, 1439).Draw(t, "from"), rapid.IntRange(0, 1440).Draw(t, "until")
		if from == until {
			until++
		}
		h, err := ParseHours(fmt.Sprintf("%s-%s %02d:%02d-%02d:%02d", weekdays[first], weekdays[last],
			from/60, from%60, until/60, until%60))
		if err != nil {
			t.Fatal(err)
		}
		within := make([]bool, minutesOfWeek)
		for day := first; ; day = (day + 1) % 7 {
			for at := from; at != until; at++ {
				if at == minutesOfDay { // over midnight
					at -= minutesOfDay
					day := (day + 1) % 7
					for ; at < until; at++ {
						within[day*minutesOfDay+at] = true
					}
					break
				}
				within[day*minutesOfDay+at] = true
			}
			if day == last {
				break
			}
		}
		got := make([]bool, minutesOfWeek)
		for r := range strings.SplitSeq(strings.Trim(*h.Minutes(), "{}"), "),[") {
			var a, b int
			if _, err := fmt.Sscanf(strings.Trim(r, "[)"), "%d,%d", &a, &b); err != nil || a >= b || b > minutesOfWeek {
				t.Fatalf("%s: %q: %v", *h.Minutes(), r, err)
			}
			for ; a < b; a++ {
				got[a] = true
			}
		}
		for m := range within {
			if got[m] != within[m] {
				t.Fatalf("%s: minute %d is within: %t, want %t", h, m, got[m], within[m])
			}
		}
	})
}

// Package wording formats values for users: counts, sizes, durations and shares. It also makes foreign text safe for a
// line.
package wording

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Count formats a number with its noun.
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

// Rate formats a rate per second.
func Rate(perSecond float64, noun string) string {
	digits := 0
	if perSecond < 10 { //nolint:mnd // small rates need a decimal
		digits = 1
	}
	return strconv.FormatFloat(perSecond, 'f', digits, 64) + " " + noun + "s/s"
}

// Size formats bytes with a unit.
func Size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	value, units := float64(n)/step, []string{"kB", "MB", "GB", "TB"}
	for value >= step && len(units) > 1 {
		value, units = value/step, units[1:]
	}
	const whole = 10
	if value < whole {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}

// Age formats seconds: 40 ms, 6 s, 8 min 6 s, 3 h 20 min, 2 days 5 h. embedsidecar.age_words does the same.
func Age(seconds float64) string {
	const day = 24 * time.Hour
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond/2:
		return "0 s"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	case d.Round(time.Second) < time.Hour:
		d = d.Round(time.Second)
		return both(d/time.Minute, "min", d%time.Minute/time.Second, "s")
	case d.Round(time.Minute) < 2*day:
		d = d.Round(time.Minute)
		return both(d/time.Hour, "h", d%time.Hour/time.Minute, "min")
	}
	d = d.Round(time.Hour)
	return both(d/day, "days", d%day/time.Hour, "h")
}

// both formats two parts of a duration, without one that is 0.
func both(large time.Duration, unit string, small time.Duration, part string) string {
	switch {
	case large == 0:
		return strconv.FormatInt(int64(small), 10) + " " + part
	case small == 0:
		return strconv.FormatInt(int64(large), 10) + " " + unit
	}
	return strconv.FormatInt(int64(large), 10) + " " + unit + " " + strconv.FormatInt(int64(small), 10) + " " + part
}

// Percent formats a share, truncated to one digit, so that 100 means all.
func Percent(part float64) string {
	return fmt.Sprintf("%.1f%%", float64(int64(part*100*10))/10) //nolint:mnd // percent, with one digit
}

// Bar draws a share with ASCII characters.
func Bar(part float64) string {
	const width = 20
	full := int(part * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}

// Joined joins hints in one line; statements among them have their own semicolons.
func Joined(hints []string) string {
	const between = "; "
	return strings.ReplaceAll(strings.Join(hints, between), ";"+between, between)
}

// Cut truncates a text after most bytes, with dots at the end.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// ASCII replaces all other characters: a database's encoding may lack them.
func ASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, text)
}

// OneLine keeps names and messages from a database from breaking out of their line, in a table, a terminal or a script.
func OneLine(s string) string { return breaks.Replace(Printable(s)) }

var breaks = strings.NewReplacer("\n", " ", "\t", " ")

// Tricks reports whether a character may control a terminal or the order of text, instead of being displayed.
func Tricks(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// Printable replaces each character that would control a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if Tricks(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Money formats an amount: 12.34 EUR, small ones with two significant digits (0.0025 EUR), without a currency if it is
// "".
func Money(amount float64, currency string) string {
	const cents, small = 2, 0.1
	digits := cents
	if amount > 0 && amount < small {
		digits = 1 - int(math.Floor(math.Log10(amount)))
	}
	s := strconv.FormatFloat(amount, 'f', digits, 64)
	if digits > cents {
		s = strings.TrimRight(s, "0")
	}
	return strings.TrimSpace(s + " " + currency)
}

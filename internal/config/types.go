package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// types parse a text as a value of the setting's field. Lists have their own types: see itemTypes.
var types = map[string]func(s *Setting, v string) (any, error){
	"text":       func(_ *Setting, v string) (any, error) { return v, nil },
	"name":       func(_ *Setting, v string) (any, error) { return v, when(v == "", "expected a text that is not empty") },
	"bool":       func(_ *Setting, v string) (any, error) { return parseBool(v) },
	"number":     func(s *Setting, v string) (any, error) { return parseInt(v, whole(s.Low), whole(s.High)) },
	"auto":       func(s *Setting, v string) (any, error) { return parseAuto(v, whole(s.High)) },
	"currency":   func(_ *Setting, v string) (any, error) { return v, checkCurrency(v) },
	"price":      func(_ *Setting, v string) (any, error) { return parsePrice(v, "the price of a million tokens") },
	"money":      func(_ *Setting, v string) (any, error) { return parsePrice(v, "an amount of money") },
	"share":      func(_ *Setting, v string) (any, error) { return parseShare(v) },
	"duration":   parseDuration,
	"size":       parseSize,
	"choice":     parseChoice,
	"second":     func(s *Setting, v string) (any, error) { at, err := s.choose(v); return at == 1, err },
	"urgency":    parseUrgency,
	"level":      parseLevel,
	"sha256":     func(_ *Setting, v string) (any, error) { return parseSHA256(v) },
	"slot":       func(_ *Setting, v string) (any, error) { return v, checkSlot(v) },
	"identifier": func(_ *Setting, v string) (any, error) { return v, checkName(v) },
	"instance":   func(_ *Setting, v string) (any, error) { return v, checkInstance(v) },
	"listen":     func(_ *Setting, v string) (any, error) { return v, checkListen(v) },
	"base_path":  func(_ *Setting, v string) (any, error) { return parseBasePath(v) },
	"expression": func(_ *Setting, v string) (any, error) {
		v = strings.TrimSpace(v)
		return v, when(v == "" || invalidAt(v) >= 0, "expected an SQL expression")
	},
	"labels":  func(_ *Setting, v string) (any, error) { return parseLabels(v) },
	"joins":   func(_ *Setting, v string) (any, error) { return parseJoins(v) },
	"hours":   func(_ *Setting, v string) (any, error) { return pipeline.ParseHours(v) },
	"column":  func(_ *Setting, v string) (any, error) { return parseIdent("", v) },
	"columns": func(_ *Setting, v string) (any, error) { return parseColumns("", v) },
	"table": func(_ *Setting, v string) (any, error) {
		schema, table, err := parseTable("", v)
		return [2]string{schema, table}, err
	},
	"source": func(_ *Setting, v string) (any, error) {
		schema, table, err := parseTable("table", v)
		return [2]string{schema, table}, err
	},
	"pattern":  func(_ *Setting, v string) (any, error) { return parsePattern(v) },
	"patterns": func(_ *Setting, v string) (any, error) { one, err := parsePattern(v); return []string{one}, err },
	"pipeline": func(_ *Setting, v string) (any, error) { return ParsePipeline(v) },
	"version": func(_ *Setting, v string) (any, error) {
		return nil, when(v != "1", "this program knows version 1 of the file, not %q", v)
	},
}

func when(wrong bool, format string, args ...any) error {
	if wrong {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// put parses a text and sets the field of its owner.
func (s *Setting) put(owner reflect.Value, v string) error {
	if strings.ContainsRune(v, 0) {
		return errors.New("a value cannot hold a NUL byte")
	}
	value, err := types[s.Type](s, v)
	if err != nil || value == nil {
		return err
	}
	if u, ok := value.(urgency); ok {
		fields := s.fields(owner)
		fields[0].Set(reflect.ValueOf(u.lane))
		fields[1].SetString(u.expression)
		return nil
	}
	if pair, ok := value.([2]string); ok {
		for i, field := range s.fields(owner) {
			field.SetString(pair[i])
		}
		return nil
	}
	field := s.fields(owner)[0]
	if field.Kind() == reflect.Map && reflect.TypeOf(value) != field.Type() {
		field.SetMapIndex(reflect.ValueOf(s.Path), reflect.ValueOf(value))
		return nil
	}
	field.Set(reflect.ValueOf(value).Convert(field.Type()))
	return nil
}

// fields returns the fields that the setting sets: usually one, two for a table's name, or the owner itself.
func (s *Setting) fields(owner reflect.Value) (list []reflect.Value) {
	for path := range strings.FieldsSeq(s.Fields) {
		field := owner
		for name := range strings.SplitSeq(path, ".") {
			field = field.FieldByName(name)
		}
		list = append(list, field)
	}
	if list == nil {
		list = []reflect.Value{owner}
	}
	return list
}

// text returns the value of the field as a user would write it.
func (s *Setting) text(owner reflect.Value) string {
	if s.Type == "version" || s.Type == "pipeline" {
		return ""
	}
	fields := s.fields(owner)
	switch v := fields[0].Interface().(type) {
	case bool:
		if s.Type == "second" {
			return s.Choices[map[bool]int{true: 1}[v]]
		}
		return strconv.FormatBool(v)
	case int:
		if v == 0 && s.Type == "auto" {
			return "auto"
		}
		return strconv.Itoa(v)
	case int64:
		return formatSize(v)
	case time.Duration:
		return formatDuration(v)
	case pipeline.Lane:
		return cmp.Or(fields[1].String(), s.Choices[v])
	case slog.Level:
		return strings.ToLower(v.String())
	case map[string]string:
		return v[s.Path]
	case []string:
		if s.Type == "variables" || s.Type == "patterns" {
			return strings.Join(v, ", ")
		}
		return strings.Join(lists.Map(v, quoteIdent), ", ")
	case string:
		switch {
		case len(fields) == 2 && fields[1].String() == "":
			return ""
		case len(fields) == 2:
			return tableName(v, fields[1].String())
		case s.Type == "column" && v != "":
			return quoteIdent(v)
		}
	}
	return fmt.Sprint(fields[0].Interface())
}

// choose returns the index of a value among the choices.
func (s *Setting) choose(v string) (int, error) {
	_, err := oneOf(v, s.Choices...)
	return slices.Index(s.Choices, v), err
}

// urgency is a priority, or an expression over a row that returns one.
type urgency struct {
	lane       pipeline.Lane
	expression string
}

// parseUrgency reads one of the choices, or an expression. It refuses a single word that is not a priority: it would be
// a column, but is more likely a mistake.
func parseUrgency(s *Setting, v string) (any, error) {
	v = strings.TrimSpace(v)
	for lane := range pipeline.Urgent + 1 {
		if s.Choices[lane] == v {
			return urgency{lane: lane}, nil
		}
	}
	_, err := s.choose(v)
	if !strings.ContainsAny(v, " \t\n(") {
		return nil, err
	}
	return urgency{pipeline.Normal, v}, when(invalidAt(v) >= 0, "expected an SQL expression")
}

// parseChoice reads one of the choices; none is the empty string.
func parseChoice(s *Setting, v string) (any, error) {
	v, err := oneOf(v, s.Choices...)
	if v == "none" {
		v = ""
	}
	return v, err
}

func parseLevel(s *Setting, v string) (any, error) {
	if _, err := s.choose(v); err != nil {
		return nil, err
	}
	var level slog.Level
	return level, level.UnmarshalText([]byte(v))
}

// parseLabels reads labels from JSON: numbers and booleans become text.
func parseLabels(text string) (pipeline.Labels, error) {
	var said map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&said); err != nil || decoder.More() {
		return nil, errors.New("expected names and values: {project: search, team: web}")
	}
	labels := pipeline.Labels{}
	for name, value := range said {
		switch value.(type) {
		case string, bool, json.Number:
			labels[name] = fmt.Sprint(value)
		default:
			return nil, fmt.Errorf("%s: expected a text", name)
		}
	}
	problem := labels.Mistake()
	return labels, when(problem != "", "%s", problem)
}

// itemTypes parse an item of a list. Columns may also be a text with commas.
var itemTypes = map[string]func(string) (string, error){
	"columns":   func(v string) (string, error) { return parseIdent("", v) },
	"idents":    func(v string) (string, error) { return parseIdent("", v) },
	"patterns":  parsePattern,
	"texts":     func(v string) (string, error) { return v, nil },
	"variables": func(v string) (string, error) { return v, when(!isVariable(v), "%q is not the name of a variable", v) },
}

// putList parses the items of a list and sets the field of its owner.
func (s *Setting) putList(owner reflect.Value, items []string) error {
	var list []string
	for i, item := range items {
		value, err := itemTypes[s.Type](item)
		if err != nil {
			return &itemError{i, err}
		}
		list = append(list, value)
	}
	field := s.fields(owner)[0]
	if field.Kind() != reflect.String {
		field.Set(reflect.ValueOf(list))
		return nil
	}
	written, err := json.Marshal(list) // so that the owner stays comparable
	field.SetString(string(written))
	return err
}

// itemError is a mistake in a list element.
type itemError struct {
	index int
	err   error
}

func (e *itemError) Error() string { return index("", e.index) + ": " + e.err.Error() }

// index returns the path of a list element.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func parseBool(s string) (bool, error) {
	switch s {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("expected true or false, not %q", s)
}

// whole returns a limit of the table, 0 for none.
func whole(bound string) int {
	n, _ := strconv.Atoi(bound)
	return n
}

func parseInt(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("expected a whole number, not %q", s)
	}
	return n, when(n < low || n > high, "expected a number from %d to %d, not %d", low, high, n)
}

// parseAuto reads a number, or "auto" for 0.
func parseAuto(s string, high int) (int, error) {
	if s == "auto" {
		return 0, nil
	}
	n, err := parseInt(s, 0, high)
	if err != nil {
		return 0, fmt.Errorf("%w; auto lets the program choose", err)
	}
	return n, nil
}

func checkCurrency(s string) error {
	const letters = 3 // ISO 4217
	return when(len(s) != letters || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "",
		"expected three capital letters, such as EUR, not %q", s)
}

func parsePrice(s, what string) (float64, error) {
	const most = 1e12
	price, err := strconv.ParseFloat(s, 64)
	return price, when(err != nil || !(price > 0 && price <= most),
		"expected %s, a number above 0, not %q", what, s)
}

func parseShare(s string) (float64, error) {
	share, err := strconv.ParseFloat(s, 64)
	return share, when(err != nil || !(share > 0 && share <= 1), "expected a number above 0, up to 1, not %q", s)
}

// parseDuration reads durations such as 500ms, 30s, 5m, 1h30m.
func parseDuration(s *Setting, v string) (any, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		if _, number := strconv.ParseFloat(v, 64); number == nil {
			return nil, fmt.Errorf("%q has no unit: write %ss, %sm or the like", v, v, v)
		}
		return nil, fmt.Errorf("expected a duration such as 500ms, 30s or 5m, not %q", v)
	}
	low, _ := time.ParseDuration(s.Low)
	high, _ := time.ParseDuration(s.High)
	return d, when(d < low || d > high, "expected a duration from %s to %s, not %s", formatDuration(low),
		formatDuration(high), v)
}

func formatDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = strings.TrimSuffix(s, zero[1:])
		}
	}
	return s
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// parseSize reads sizes such as 64MiB, 1.5GiB, 100kB; a bare number is bytes.
func parseSize(s *Setting, v string) (any, error) {
	size, low, high := bytesOf(v), bytesOf(s.Low), bytesOf(s.High)
	if math.IsNaN(size) {
		return nil, fmt.Errorf("expected a size such as 64MiB or 1GiB, not %q", v)
	}
	return int64(size), when(size < low || size > high, "expected a size from %s to %s, not %s", s.Low, s.High, v)
}

// bytesOf returns the number of bytes in a text; NaN if it is not a size.
func bytesOf(s string) float64 {
	number, factor := s, int64(1)
	for _, unit := range units {
		if rest, ok := strings.CutSuffix(s, unit.suffix); ok {
			number, factor = strings.TrimRight(rest, " "), unit.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsInf(n, 0) || strings.ContainsAny(number, "xXpP_") {
		return math.NaN()
	}
	return n * float64(factor)
}

func formatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if n != 0 && n%units[i].bytes == 0 {
			return strconv.FormatInt(n/units[i].bytes, 10) + units[i].suffix
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func parseSHA256(s string) (string, error) {
	s = strings.ToLower(strings.TrimPrefix(s, "sha256:"))
	return s, when(len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "",
		"expected a SHA-256 of 64 hexadecimal digits")
}

func oneOf(s string, choices ...string) (string, error) {
	last := len(choices) - 1
	return s, when(!slices.Contains(choices, s), "expected %s or %s, not %q", strings.Join(choices[:last], ", "),
		choices[last], s)
}

// checkSlot checks Postgres' rules for slot names.
func checkSlot(name string) error {
	return when(name == "" || len(name) > maxIdent || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "",
		"a slot's name has 1 to %d of a-z, 0-9 and _, not %q", maxIdent, name)
}

func checkName(name string) error {
	return when(name == "" || len(name) > maxIdent || invalidAt(name) >= 0, "expected a name of 1 to %d bytes of UTF-8",
		maxIdent)
}

func checkInstance(name string) error {
	const most = maxIdent - len("embedsidecar/")
	return when(name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }),
		"expected a name of 1 to %d printable ASCII characters without spaces, not %q", most, name)
}

func checkListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("expected HOST:PORT or :PORT, as in 127.0.0.1:7471, not %q", address)
	}
	if _, err := parseInt(port, 0, 65535); err != nil {
		return fmt.Errorf("port of %q: %w", address, err)
	}
	return when(strings.ContainsAny(host, " /@"), "expected HOST:PORT, as in 127.0.0.1:7471, not %q", address)
}

// basePath matches a path that needs no escaping in links, cookies and proxy patterns.
var basePath = regexp.MustCompile(`^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$`)

// parseBasePath reads the path under which a proxy serves the pages, and removes a trailing slash.
func parseBasePath(v string) (string, error) {
	path := strings.TrimRight(v, "/")
	return path, when(path != "" && !basePath.MatchString(path),
		"expected a path such as /tools/embedsidecar, of letters, digits, dots, - and _, not %q", v)
}

// parsePattern reads a pattern of schema names.
func parsePattern(v string) (string, error) {
	return v, when(v == "" || invalidAt(v) >= 0 || strings.ContainsAny(v, "\"%") || len(strings.Trim(v, "*")) > maxIdent,
		"expected a pattern of names as they are stored, without quotes, in which * stands for any text and ? for any character, not %q", v)
}

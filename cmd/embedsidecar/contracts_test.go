package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

var update = flag.Bool("update", false, "rewrite testdata/contracts")

// contracts are the outputs with -o json that other programs read. testdata/contracts shows each change: additions are
// compatible, removals and renames are not.
var contracts = map[string]reflect.Type{
	"audit":       reflect.TypeFor[map[string][]report.Action](),
	"backfill":    reflect.TypeFor[map[string][]app.Backfilled](),
	"check":       reflect.TypeFor[map[string][]check.Finding](),
	"config show": reflect.TypeFor[map[string][]config.Shown](),
	"error":       reflect.TypeFor[map[string]problem.Told](),
	"explain":     reflect.TypeFor[map[string][]explain.Story](),
	"status":      reflect.TypeFor[observe.Database](),
	"tasks list":  reflect.TypeFor[map[string][]report.Task](),
	"wait":        reflect.TypeFor[caughtup.Answer](),
	"wait for":    reflect.TypeFor[map[string][]caughtup.Drained](),
}

func TestContracts_AreKept(t *testing.T) {
	t.Parallel()
	for name, kind := range contracts {
		body, err := json.MarshalIndent(shapeOf(kind), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "contracts", strings.ReplaceAll(name, " ", "_")+".json")
		if *update {
			if err := os.WriteFile(path, append(body, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(body)+"\n"); diff != "" {
			t.Errorf("%s has another form now; if that is meant: go test ./cmd/embedsidecar -run Contracts -update (-was +is)\n%s",
				name, diff)
		}
	}
}

// shapeOf returns the JSON Schema of a type.
func shapeOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Interface, t.Implements(reflect.TypeFor[json.Marshaler]()):
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := shapeOf(t.Elem())
		if name, ok := inner["type"].(string); ok {
			inner["type"] = []string{name, "null"}
		}
		return inner
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		addFields(t, properties, &required)
		slices.Sort(required)
		return map[string]any{
			"type": "object", "properties": properties, "required": required, "additionalProperties": false,
		}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": shapeOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": shapeOf(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	default:
		panic("no form is known for " + t.String())
	}
}

func addFields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addFields(f.Type, properties, required)
		case !f.IsExported(), name == "-":
		default:
			if name == "" {
				name = f.Name
			}
			properties[name] = shapeOf(f.Type)
			if !strings.Contains(options, "omitempty") && !slices.Contains(*required, name) {
				*required = append(*required, name)
			}
		}
	}
}

// contract returns the compiled schema of an output.
var contract = func() func(name string) (*jsonschema.Schema, error) {
	var mu sync.Mutex
	compiled := map[string]*jsonschema.Schema{}
	return func(name string) (*jsonschema.Schema, error) {
		mu.Lock()
		defer mu.Unlock()
		if compiled[name] != nil {
			return compiled[name], nil
		}
		path := filepath.Join("testdata", "contracts", strings.ReplaceAll(name, " ", "_")+".json")
		schema, err := jsonschema.NewCompiler().Compile(path)
		compiled[name] = schema
		return schema, err
	}
}()

// keepsContract fails the test unless the -o json output of a command matches its schema, and its error has a code.
// Every call of the stage is checked.
func (s *stage) keepsContract(status int, args []string, stdout, stderr string) {
	s.t.Helper()
	if strings.Contains(stderr, "embedsidecar: error "+string(code.Internal)) && status != exitInternal {
		s.t.Errorf("embedsidecar %q: an error that is foreseen has no code of its own:\n%s", args, stderr)
	}
	at := slices.Index(args, "-o")
	if at < 0 || at+1 == len(args) || args[at+1] != "json" {
		return
	}
	name := args[0]
	if len(args) > 1 && contracts[name] == nil {
		name += " " + args[1]
	}
	if name == "wait" && !slices.Contains(args, "--caught-up") && !slices.Contains(args, "--lsn") {
		name = "wait for"
	}
	check := func(name, output string) {
		schema, err := contract(name)
		if err != nil {
			s.t.Fatal(err)
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(output)))
		if err == nil {
			err = schema.Validate(instance)
		}
		if err != nil {
			s.t.Errorf("embedsidecar %q writes what its contract does not have: %v\n%s", args, err, output)
		}
	}
	if contracts[name] != nil && stdout != "" {
		check(name, stdout)
	}
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, `{"error":`) {
			check("error", line)
		}
	}
}

package problem

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

func TestCode(t *testing.T) {
	t.Parallel()
	pg := func(state, message string) error { return &pgconn.PgError{Code: state, Message: message} }
	for _, test := range []struct {
		err  error
		want code.Code
	}{
		{io.EOF, code.Internal},
		{New(Failed, io.EOF), code.Failed},
		{&Error{Class: Failed, Code: code.SlotLost, Err: io.EOF}, code.SlotLost},
		{New(Usage, refusal.UnknownPipeline("x", nil)), code.NoPipeline},
		{refusal.About("docs", refusal.Coded(code.Key, "no key")), code.Key},
		{errors.Join(io.EOF, &refusal.ConfigError{Problem: "x"}), code.Pipeline},
		{&refusal.MissingError{}, code.NoTable},
		{&refusal.ConflictError{}, code.Conflict},
		{&refusal.ConflictError{Code: code.SlotHeld}, code.SlotHeld},
		{&refusal.NotSetUpError{}, code.NotSetUp},
		{&refusal.PermissionError{}, code.Permission},
		{&config.Error{}, code.Configuration},
		{&config.ParseError{}, code.Configuration},
		{&config.NotFoundError{}, code.NotFound},
		{&embed.Error{Class: embed.Configuration, Code: "checksum", Err: io.EOF}, code.Checksum},
		{&embed.Error{Class: embed.Configuration, Err: &host.StartError{Err: io.EOF}}, code.PluginStart},
		{&embed.Error{Class: embed.Configuration, Err: &host.UnknownModelError{}}, code.NoModel},
		{&embed.TextError{Class: embed.Data}, code.Text},
		{pg("55006", ""), code.SlotHeld},
		{pg("55P03", ""), code.Locked},
		{pg("53400", ""), code.NoSlotFree},
		{pg("53400", `temporary file size exceeds "temp_file_limit" (64kB)`), code.Internal},
		{pg("25006", ""), code.Standby},
		{pg("53300", ""), code.Full},
		{pg("55000", "logical decoding requires wal_level >= logical"), code.WALLevel},
		{pg("42501", ""), code.Permission},
		{pg("3F000", ""), code.NotSetUp},
		{pg("08006", ""), code.NoAnswer},
		{pg("22012", ""), code.Internal},
	} {
		if got := Code(fmt.Errorf("do: %w", test.err)); got != test.want {
			t.Errorf("Code(%#v) = %s, want %s", test.err, got, test.want)
		}
	}
}

// New elements of these sets need a code of their own, or a matching one.
func TestCode_EveryKindHasOne(t *testing.T) {
	t.Parallel()
	for class := range Timeout + 1 {
		if code.Of(classCodes[class]).Title == "" {
			t.Errorf("class %d has no code", class)
		}
	}
	for folder, known := range map[string]func(value string) code.Code{
		"../../database/errors.go":   func(v string) code.Code { return connectCodes[database.Kind(v)] },
		"../../../embed/embedder.go": func(v string) code.Code { return embedCodes[embed.Class(v)] },
	} {
		for name, value := range constants(t, folder) {
			if code.Of(known(value)).Title == "" {
				t.Errorf("%s of %s has no code", name, folder)
			}
		}
	}
}

// constants returns the string constants of named types in a file.
func constants(t *testing.T, path string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Type == nil || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			found[spec.Names[0].Name] = lit.Value[1 : len(lit.Value)-1]
		}
		return true
	})
	if len(found) < 5 {
		t.Fatalf("%s has only %v", path, found)
	}
	return found
}

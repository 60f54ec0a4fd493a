package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/replace"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/imports"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
)

// ImportOptions says what to import from another program.
type ImportOptions struct {
	imports.Options

	Save    string   // file for the configuration
	Environ []string // for reading that file
	Trust   bool
	DryRun  bool
	By      string
}

// Imported is the result of Import; in a dry run, the expected result.
type Imported struct {
	Source string         `json:"source"`
	DryRun bool           `json:"dry_run"`
	Config string         `json:"config"` // as YAML
	Items  []ImportedItem `json:"items"`
	Left   []string       `json:"left"` // what is left of the other program, to be removed by hand
}

// ImportedItem is one pipeline of another program.
type ImportedItem struct {
	imports.Item

	Adopted *Adopted `json:"adopted"`           // null: it is not carried over, or could not be
	Problem string   `json:"problem,omitempty"` // why it could not be
}

// Import takes over the configuration, the vectors and the names that applications use from another program. It finally
// removes that program's triggers and queues, pipeline by pipeline. An interrupted import can be repeated.
func Import(ctx context.Context, n Options, o ImportOptions) (done Imported, err error) {
	done = Imported{Source: o.Source, DryRun: o.DryRun, Items: []ImportedItem{}, Left: []string{}}
	pool, err := (connection.Opener{Config: n.Config, Log: n.Log}).Pool(ctx, connection.Few)
	if err != nil {
		return done, err
	}
	defer pool.Close()
	var items []imports.Item
	if err := database.RetryReadOnly(ctx, pool, func(tx pgx.Tx) error {
		items, err = imports.Read(ctx, tx, o.Options)
		return err
	}); err != nil {
		return done, err
	}
	carried := 0
	for i := range items {
		done.Items = append(done.Items, ImportedItem{Item: items[i]})
		if items[i].Carried() {
			carried++
		}
	}
	if carried == 0 && len(items) > 0 {
		return done, &refusal.ConfigError{
			Problem: "nothing of " + o.Source + " can be carried over", Hint: reasons(items),
		}
	}
	if err := done.take(ctx, n, o); err != nil || o.DryRun || o.Source != "pgai" || carried < len(items) {
		return done, err
	}
	done.Left, err = imports.LeavePgai(ctx, pool)
	return done, err
}

// take writes the configuration of the imported pipelines and adopts their vectors.
func (d *Imported) take(ctx context.Context, n Options, o ImportOptions) (err error) {
	if len(d.Items) == 0 {
		return nil // an interrupted import has already taken over everything
	}
	items := lists.Map(d.Items, func(v ImportedItem) imports.Item { return v.Item })
	d.Config = imports.YAML(items)
	if slot := n.Config.Slot.Name; n.Config.Origin("slot.name") != "default" {
		d.Config = strings.Replace(d.Config, "\n", fmt.Sprintf("\nslot: {name: %s}\n", slot), 1)
	}
	if n.Config, err = imported(n.Config, d.Config, o); err != nil {
		return err
	}
	var failed []error
	for i := range d.Items {
		failed = append(failed, d.Items[i].take(ctx, n, o))
	}
	return errors.Join(failed...)
}

// reasons returns why nothing can be carried over.
func reasons(items []imports.Item) (list []string) {
	for i := range items {
		for _, why := range items[i].Not {
			list = append(list, items[i].Name+": "+why)
		}
	}
	return list
}

// imported writes the configuration file, and returns the configuration read from it.
func imported(c *config.Config, text string, o ImportOptions) (*config.Config, error) {
	path := o.Save
	if o.DryRun {
		folder, err := os.MkdirTemp("", "embedsidecar-*")
		if err != nil {
			return nil, fmt.Errorf("write the configuration: %w", err)
		}
		defer func() { _ = os.RemoveAll(folder) }()
		path = filepath.Join(folder, "embedsidecar.yaml")
	}
	if err := save(path, text); err != nil {
		return nil, err
	}
	read, _, err := config.Load(config.Source{Flags: map[string][]string{"config": {path}}, Environ: o.Environ})
	if err != nil {
		return nil, err
	}
	with := *c
	if len(read.Models) > 0 {
		with.Models = read.Models
	}
	with.UsePipelines(read.Pipelines...)
	return &with, nil
}

// save writes a new file. It keeps a file that says the same and more: pipelines imported before an interruption are no
// longer in the other program.
func save(path, text string) error {
	old, err := os.ReadFile(path)
	switch {
	case err == nil && says(string(old), text):
		return nil
	case err == nil:
		return problem.New(problem.Usage, fmt.Errorf("%s already exists with other content", path),
			"write the configuration to another file: --save FILE")
	case errors.Is(err, fs.ErrNotExist):
		err = replace.File(path, []byte(text), 0o600)
	}
	if err != nil {
		return problem.New(problem.Usage, fmt.Errorf("write the configuration: %w", err))
	}
	return nil
}

// says reports whether a configuration has the slot, and each model and pipeline of another.
func says(whole, part string) bool {
	const entry = "\n  - name: "
	if second := strings.SplitN(part, "\n", 3)[1]; strings.HasPrefix(second, "slot:") && !strings.Contains(whole, second) {
		return false
	}
	for _, e := range strings.Split(part, entry)[1:] {
		if !strings.Contains(whole, entry+strings.TrimSuffix(e, "\npipelines:")) {
			return false
		}
	}
	return true
}

// take adopts the vectors of one pipeline.
func (i *ImportedItem) take(ctx context.Context, n Options, o ImportOptions) error {
	if !i.Carried() {
		return nil
	}
	done, err := Adopt(ctx, n, AdoptOptions{
		Place: i.Place, Pipeline: i.Name, Trust: o.Trust, DryRun: o.DryRun, By: o.By,
		Finish: i.Finish,
	})
	if err != nil {
		i.Problem = err.Error()
		return err
	}
	i.Adopted = &done
	return nil
}

// unfinished explains why a final statement of an import failed.
func unfinished(err error, role string, spec *pipeline.Spec, sql string, all []string) error {
	var server *pgconn.PgError
	switch {
	case database.Denied(err):
		return &refusal.PermissionError{What: "finish the import of " + spec.Name, Role: role, SQL: all, Err: err}
	case database.HasCode(err, pgerrcode.DependentObjectsStillExist) && errors.As(err, &server):
		return &refusal.ConflictError{
			Problem: "the import of " + spec.Name + " cannot be finished: " + server.Detail,
			Hint:    []string{"drop that, import again, and create it again"}, Err: err,
		}
	}
	return fmt.Errorf("finish the import of %q: %s: %w", spec.Name, strings.TrimSpace(sql), err)
}

package quickstart

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// file is the configuration file, which is written at the end. It is created at the beginning, so that a taken name
// fails before anything is done.
type file struct {
	f       *os.File // nil: none is written
	written bool
}

func create(name string, dry bool) (*file, error) {
	if name == "" || dry {
		return &file{}, nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, problem.New(problem.Conflict, err, "name another file, or remove this one first")
	} else if err != nil {
		return nil, problem.New(problem.Usage, err)
	}
	return &file{f: f}, nil
}

func (f *file) write(text string) error {
	f.written = true
	_, err := f.f.WriteString(text)
	return err
}

// end closes the file, and removes it if nothing was written.
func (f *file) end() error {
	if f.f == nil {
		return nil
	}
	err := f.f.Close()
	if !f.written {
		err = errors.Join(err, os.Remove(f.f.Name()))
	}
	return err
}

// after reports what is set up, how to go on, and how to remove it.
func (q *quickstart) after(ctx context.Context) {
	spec := q.Config.Pipelines[0]
	flags := q.flags()
	q.paste(ctx, flags)
	if st, err := report.Read(ctx, q.pool); err == nil {
		for i := range st.Pipelines {
			if p := &st.Pipelines[i]; p.Name == spec.Name {
				q.Say("\npipeline %s: %d of %s embedded", p.Name, p.Known, wording.Count(p.Rows, "row"))
			}
		}
	}
	q.Say("No sidecar runs now. The replication slot retains WAL until one runs, or until you remove it:")
	q.Say("  continue     %s run%s", q.Program, flags)
	q.Say("  search       %s search %s 'a text'%s", q.Program, health.Argument(spec.Name), flags)
	q.Say("  look         %s status%s", q.Program, flags)
	q.Say("  remove       %s uninstall --yes --drop-embeddings%s", q.Program, flags)
	q.saved(spec)
}

// saved shows the configuration as a file, or writes it if requested.
func (q *quickstart) saved(spec pipeline.Spec) {
	text := config.Starter(q.Config.Pipelines[:1])
	if q.file.f != nil {
		if err := q.file.write(text); err != nil {
			q.Say("error: write the configuration: %s", err)
			return
		}
		q.Say("  as a file    wrote %s, for %s run --config %s%s", q.file.f.Name(), q.Program, health.Quoted(q.file.f.Name()),
			q.slotFlag())
		return
	}
	q.Say("  as a file    %s", config.FormatPipeline(spec))
}

// slotFlag returns --slot if this database has a slot of its own.
func (q *quickstart) slotFlag() string {
	if q.slot == "" {
		return ""
	}
	return " --slot=" + health.Quoted(q.slot)
}

// flags returns the flags of this call that the next one needs, too. Environment variables and files apply without
// flags.
func (q *quickstart) flags() string {
	var b strings.Builder
	if f := q.Config.File(); f != "" {
		b.WriteString(" --config " + health.Quoted(f))
	}
	for _, s := range q.Config.Show(false) {
		if flag, is := strings.CutPrefix(s.Origin, "--"); is && !strings.HasPrefix(s.Path, "pipelines") {
			b.WriteString(" --" + flag + "=" + health.Quoted(q.Redact(s.Value)))
		}
	}
	b.WriteString(q.slotFlag())
	if q.trusted != "" && !strings.Contains(b.String(), " --trust-owner=") {
		b.WriteString(" --trust-owner=" + health.Quoted(q.trusted))
	}
	return b.String()
}

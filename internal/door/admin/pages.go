package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/queue"
)

// What pages show beside what the API answers.

type doorKey struct{}

// SignIn begins a session of a browser that shows a token in a form: a page does that which a script need not. It
// returns the session's cookie, for the answer.
func SignIn(r *http.Request, secret string) (*http.Cookie, error) {
	d, ok := r.Context().Value(doorKey{}).(*door)
	if !ok {
		return nil, unknown("")
	}
	who, ok := d.tokens.Who(strings.TrimSpace(secret))
	if !ok {
		return nil, unknown(who.Unknown())
	}
	c, refused := d.admit(r, who)
	if refused != nil {
		return nil, refused
	}
	return d.open(c), nil
}

// SignOut ends the session of a browser, if there is one, and returns the cookie that takes the other away.
func SignOut(r *http.Request) *http.Cookie {
	id := ""
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		id = cookie.Value
	}
	d, ok := r.Context().Value(doorKey{}).(*door)
	if !ok {
		return (&door{}).cookie("", -1, false)
	}
	return d.end(id)
}

// ReadOnly reports whether nothing can be changed here, whoever asks.
func (s *Service) ReadOnly() bool { return s.o.Config.Admin.ReadOnly }

// MayChange returns why who asks may change nothing here, or nil.
func (s *Service) MayChange(ctx context.Context) error {
	if _, err := asked(ctx, serve.RoleOperator); err != nil {
		return err
	}
	return s.mayChange(false)
}

// Defined returns how a pipeline is defined, as far as its table can be looked at now; nil: it cannot.
func (s *Service) Defined(ctx context.Context, name string) (*pipeline.Pipeline, error) {
	_, pool, names, err := s.meant(ctx, serve.RoleViewer, []string{name})
	if err != nil {
		return nil, err
	}
	all, err := lookup.AllBy(ctx, &s.memory.Loader, pool)
	if err != nil {
		return nil, err
	}
	if at := lookup.Find(all, names[0]); at >= 0 {
		return &all[at], nil
	}
	return nil, nil
}

// Looks counts the looks at rows of a pipeline that ended in each of the last minutes, an hour at most, by way of the
// queue. Where there is more than can be counted in a moment, it returns an error whose cause says so.
func (s *Service) Looks(ctx context.Context, id int32, minutes int) (list []queue.Looks, err error) {
	if _, err := asked(ctx, serve.RoleViewer); err != nil {
		return nil, err
	}
	pool, err := s.database()
	if err != nil {
		return nil, err
	}
	const patience = time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = database.ReadOnly(ctx, pool, func(tx pgx.Tx) error {
		all, err := queue.Recent(ctx, tx, minutes)
		for _, l := range all {
			if l.PipelineID == id {
				list = append(list, l)
			}
		}
		return err
	})
	return list, err
}

// Named returns the plugins and models that can be named on this machine.
func (s *Service) Named(ctx context.Context) (plugins []registry.Known, folders []models.Info, err error) {
	if _, err := wholly(ctx, serve.RoleViewer); err != nil {
		return nil, nil, err
	}
	if s.o.Registered != nil {
		if plugins, err = s.o.Registered(ctx); err != nil {
			return nil, nil, err
		}
	}
	if s.o.Folders != nil {
		folders = s.o.Folders()
	}
	return plugins, folders, nil
}

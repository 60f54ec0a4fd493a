// Package control is the interface of a running sidecar for programs of the same user on the same machine: it reports
// on plugins and caches, and reloads plugins and the configuration. It is a Unix socket in a folder that only the user
// may enter. There is no other authentication.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// State is what a running sidecar reports about itself.
type State struct {
	Instance string `json:"instance"`
	Slot     string `json:"slot"`
	Database string `json:"database,omitempty"` // as database.Which returns it; "": there is none, or it is not known yet
	// in case of several
	Databases []string `json:"databases,omitempty"`
	Version   string   `json:"version"`
	Pid       int      `json:"pid"`
	Plugins   []Plugin `json:"plugins"`
}

// Plugin is a running plugin with one model.
type Plugin struct {
	Plugin       string         `json:"plugin"`
	Model        string         `json:"model"` // "" before it was described
	Version      string         `json:"version"`
	Path         string         `json:"path"`
	Circuit      host.Circuit   `json:"circuit"`
	Reason       string         `json:"reason,omitempty"` // the last failure since the last success
	RetrySeconds float64        `json:"retry_seconds,omitempty"`
	Wanted       int            `json:"processes_wanted"`
	Processes    []host.Process `json:"processes"`
	Restarts     uint64         `json:"restarts"`
	Hangs        uint64         `json:"hangs"`
	BadAnswers   uint64         `json:"bad_answers"`
	Calls        uint64         `json:"calls"`
	Texts        uint64         `json:"texts"`
}

// Reloaded is the result for one plugin.
type Reloaded struct {
	Plugin string `json:"plugin"`
	Model  string `json:"model"`
	// of the plugin that now runs
	Version string `json:"version,omitempty"`
	Result  string `json:"result"` // "reloaded" or "refused"
	Detail  string `json:"detail,omitempty"`
}

// Options say what a Server answers.
type Options struct {
	Dir    string // for sockets; created if missing
	State  func() State
	Reload func(ctx context.Context, plugins []string) []Reloaded // no names: all
	// Configure applies the current configuration file; nil: the configuration is fixed
	Configure func(ctx context.Context) Configured
	Log       *slog.Logger
}

// Server listens as soon as Listen returns.
type Server struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
}

const (
	suffix        = ".sock"
	headerTimeout = 30 * time.Second
	stopTimeout   = time.Second
	askTimeout    = 30 * time.Second // long: a busy sidecar must not be left out
	maxBody       = 4 << 20
)

// Listen opens the socket.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := private(o.Dir); err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	for _, path := range sockets(o.Dir) {
		if abandoned(ctx, path) {
			_ = os.Remove(path) // of a sidecar that was killed
		}
	}
	path := filepath.Join(o.Dir, strconv.Itoa(os.Getpid())+suffix)
	_ = os.Remove(path) // the previous process with this PID is gone
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { write(w, o.State()) })
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		var plugins []string
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&plugins); err != nil {
			http.Error(w, "expected a list of names of plugins", http.StatusBadRequest)
			return
		}
		write(w, o.Reload(r.Context(), plugins))
	})
	if o.Configure != nil {
		mux.HandleFunc("POST /configuration", func(w http.ResponseWriter, r *http.Request) {
			write(w, o.Configure(r.Context()))
		})
	}
	return &Server{listener: listener, log: o.Log, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}}, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return wrap.Errorf(httpserver.Run(ctx, s.http, s.listener, stopTimeout, s.log), "serve the control socket")
}

func write(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// private checks that a folder exists, is ours, and is closed to others. In a folder that everyone can write to,
// another user may have made it first.
func private(dir string) error {
	const mine = 0o700
	if err := os.MkdirAll(dir, mine); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s must be a folder of this user alone (chmod 700): it is %s", dir, info.Mode())
	}
	return nil
}

// abandoned reports whether no process listens on a socket any more.
func abandoned(ctx context.Context, path string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func sockets(dir string) []string {
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil
	}
	return found
}

// Sidecar is a running sidecar that answers.
type Sidecar struct {
	State State
	path  string
}

// Find returns the running sidecars with sockets in a folder. It leaves out those that do not answer. A missing folder
// is empty; one that others can write to is an error.
func Find(ctx context.Context, dir string) ([]Sidecar, error) {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := private(dir); err != nil {
		return nil, fmt.Errorf("look for running sidecars: %w", err)
	}
	var list []Sidecar
	for _, path := range sockets(dir) {
		if state, err := ask(ctx, path); err == nil {
			list = append(list, Sidecar{State: state, path: path})
		}
	}
	return list, nil
}

func ask(ctx context.Context, path string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var state State
	err := exchange(ctx, path, http.MethodGet, "/state", nil, &state)
	return state, err
}

// Reload reloads plugins of a sidecar; no names mean all. It returns when they have started.
func (s Sidecar) Reload(ctx context.Context, plugins []string) ([]Reloaded, error) {
	body, err := json.Marshal(append([]string{}, plugins...))
	if err != nil {
		return nil, err
	}
	var results []Reloaded
	err = exchange(ctx, s.path, http.MethodPost, "/reload", bytes.NewReader(body), &results)
	return results, wrap.Errorf(err, "make the sidecar %s (process %d) reload its plugins", s.State.Instance, s.State.Pid)
}

func exchange(ctx context.Context, path, method, action string, body io.Reader, into any) error {
	var dialer net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error,
	) {
		return dialer.DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://sidecar"+action, body)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(into)
}

// The results of Configure.
const (
	Taken     = "in_force"  // it was applied
	Unchanged = "unchanged" // it equals the current configuration
	Refused   = "refused"   // nothing was changed
	Planned   = "planned"   // it would be applied
	Halfway   = "halfway"   // apply failed after these steps
)

// Cost is the approximate cost of a pipeline's backfill.
type Cost struct {
	Pipeline string   `json:"pipeline"`
	Rows     int64    `json:"rows"`
	Texts    int64    `json:"texts"`
	Tokens   int64    `json:"tokens"`
	Price    *float64 `json:"price"` // null: the model has no configured price
	Currency string   `json:"currency,omitempty"`
	Line     string   `json:"line"` // all of this as a text
}

// Configured is the result of applying a configuration, or of a dry run.
type Configured struct {
	Instance     string   `json:"instance"`
	Pid          int      `json:"pid"`
	File         string   `json:"file"`
	State        string   `json:"state"`
	Changed      []string `json:"changed"`       // applied settings and lists
	NeedsRestart []string `json:"needs_restart"` // settings that need a restart
	Steps        []string `json:"steps"`         // changes in the database, in this order
	Removed      []string `json:"removed"`       // removed pipelines
	Lost         []string `json:"lost"`          // what is lost with them
	Costs        []Cost   `json:"costs"`
	Warnings     []string `json:"warnings"`
	Reason       string   `json:"reason,omitempty"` // why it is refused
	Hints        []string `json:"hints,omitempty"`
	Passing      bool     `json:"-"` // refused because the server is unavailable: a retry may succeed
}

// Filled replaces missing lists by empty ones.
func (c Configured) Filled() Configured {
	for _, list := range []*[]string{&c.Changed, &c.NeedsRestart, &c.Steps, &c.Removed, &c.Lost, &c.Warnings} {
		*list = append([]string{}, *list...)
	}
	c.Costs = append([]Cost{}, c.Costs...)
	return c
}

// Short limits the JSON size by truncating texts and lists, as far as that suffices.
func (c Configured) Short(bytes int) Configured {
	for entries, letters := 100, 1000; ; entries, letters = entries/2, letters/2 {
		s := c
		s.Reason = wording.Cut(c.Reason, letters)
		for _, list := range []*[]string{&s.Changed, &s.NeedsRestart, &s.Steps, &s.Removed, &s.Lost, &s.Warnings, &s.Hints} {
			*list = first(*list, entries, letters)
		}
		s.Costs = c.Costs[:min(len(c.Costs), entries)]
		if more := len(c.Costs) - entries; more > 0 {
			s.Costs = append(slices.Clip(s.Costs), Cost{Line: fmt.Sprintf("and %d more", more)})
		}
		if text, err := json.Marshal(s); err != nil || len(text) <= bytes || letters == 0 {
			return s
		}
	}
}

// first returns the first entries of a list, each truncated.
func first(list []string, entries, letters int) (kept []string) {
	for _, text := range list[:min(len(list), entries)] {
		kept = append(kept, wording.Cut(text, letters))
	}
	if more := len(list) - entries; more > 0 {
		kept = append(kept, fmt.Sprintf("and %d more", more))
	}
	return kept
}

// Configure applies a sidecar's current configuration file. It returns when that is done.
func (s Sidecar) Configure(ctx context.Context) (Configured, error) {
	var done Configured
	err := exchange(ctx, s.path, http.MethodPost, "/configuration", nil, &done)
	return done, wrap.Errorf(err, "make the sidecar %s (process %d) read its configuration", s.State.Instance, s.State.Pid)
}

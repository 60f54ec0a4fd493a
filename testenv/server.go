package testenv

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

const (
	// of initdb, server start and CREATE DATABASE; generous, for busy machines
	startTimeout = 5 * time.Minute
	stopTimeout  = 3 * time.Minute

	// Superuser is the initial role of a server that Start made.
	Superuser = "postgres"
	// Owner owns the databases that DB makes and their objects. It may replicate, and is not a superuser.
	Owner = "embedsidecar_owner"
)

// Mode is a shutdown mode.
type Mode int

// The modes, the gentlest first.
const (
	Fast      Mode = iota // ends sessions, writes a checkpoint: what restarts and upgrades do
	Immediate             // no checkpoint: recovery at the next start
	Killed                // SIGKILL, as by the OOM killer
)

// Options are options of Start. The zero value is usable.
type Options struct {
	Major  int               // 0: PGBIN's, else the newest there is
	Config map[string]string // further settings; the defaults already allow logical replication
	Port   int               // 0: a free one
	Fsync  bool              // off by default: without it only a crash of the machine loses data
}

// Server is a PostgreSQL server for tests. Its methods are safe for concurrent use, except Stop, Resume, Restart and
// Close.
type Server struct {
	major    int
	host     string
	port     int
	admin    string // a superuser
	password string // of the superuser
	roleWord string // password of every role that this package makes
	database string // the superuser's default database
	params   string // of the connection string

	bin  string // "" for an external server
	dir  string // folder with data and server.log
	lock *os.File

	reserved *reservation // of the port; nil: not yet, or the port was given

	mu      sync.Mutex
	process *Process // nil while stopped

	copies    bool       // databases are cloned with FILE_COPY, which writes little WAL for slots to read
	prepare   sync.Mutex // guards making the template
	template  string
	databases counter
}

// Start makes a server with one superuser on a port of 127.0.0.1 and waits until it accepts connections. If this
// process runs as root, the server runs as "nobody", because PostgreSQL refuses root. Close removes it with all its
// data. It also ends with this process.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, major, err := FindServer(ctx, o.Major)
	if err != nil {
		return nil, err
	}
	removeAbandoned()
	dir, lock, err := makeDir(o.Fsync)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the server: %w", err)
	}
	s := &Server{
		major: major, host: "127.0.0.1", admin: Superuser, password: canary.Secret + rand.Text(), roleWord: canary.Secret +
			rand.Text(), database: "postgres",
		params: "sslmode=disable", bin: bin, dir: dir, lock: lock, port: o.Port,
		copies: major >= 15 && !o.Fsync, // 14 has no STRATEGY option; FILE_COPY makes checkpoints, which are slow with fsync
	}
	if err := s.create(ctx, o); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.Resume(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// Own starts a server for this test only, which may be stopped, restarted and configured. It ends with the test.
func Own(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Server) create(ctx context.Context, o Options) error {
	passwords := filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwords, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := GiveAway(passwords); err != nil {
		return err
	}
	// Passwords, not trust: every user of this machine can reach the port, and a superuser can run programs.
	initdb := s.command(ctx, "initdb", "-N", "-D", s.data(), "-U", Superuser, "-A", "scram-sha-256", "--pwfile", passwords,
		"-E", "UTF8", "--locale", "C.UTF-8")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb of PostgreSQL %d in %s: %w: %s", s.major, s.dir, err, out)
	}
	config := map[string]string{
		"listen_addresses": "127.0.0.1",
		// The path of a socket is limited to 107 bytes, and temporary folders can be longer.
		"unix_socket_directories": "",
		// Not in /dev/shm, which has 64 MB in a container: a killed server would leave its segments there.
		"dynamic_shared_memory_type": "mmap",
		"wal_level":                  "logical",
		// Enough for all parallel tests on any number of CPUs.
		"max_wal_senders":           "200",
		"max_replication_slots":     "200",
		"max_connections":           "600",
		"max_prepared_transactions": "64",
		"shared_buffers":            "64MB",
		"max_wal_size":              "2GB",
		"jit":                       "off",
		"lc_messages":               "C",
		"log_line_prefix":           "%m [%p] %q%u@%d ",
	}
	if s.major >= 16 {
		config["scram_iterations"] = "1" // the password is random, and tests make hundreds of connections
	}
	if !o.Fsync {
		config["fsync"] = "off"
		config["full_page_writes"] = "off"
		config["wal_init_zero"] = "off"
	}
	maps.Copy(config, o.Config)
	return s.Configure(config)
}

// Configure adds settings. They apply after the next start, or after pg_reload_conf() if the server allows that.
func (s *Server) Configure(config map[string]string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(config[name], "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure the server: %w", err)
	}
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

// Resume starts a stopped server on its former port, and waits until it accepts connections.
func (s *Server) Resume(ctx context.Context) error {
	if s.bin == "" {
		return errors.New("cannot start an external server")
	}
	if s.running() != nil {
		return errors.New("the server runs already")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	first := s.port == 0
	for {
		if first {
			reserved, err := reserve(ctx)
			if err != nil {
				return fmt.Errorf("find a free port: %w", err)
			}
			_ = s.reserved.Close() // another process has taken the port anyway
			s.port, s.reserved = reserved.port, reserved
		}
		err := s.launch(ctx)
		if err == nil || ctx.Err() != nil || !mayPass(err, first) {
			return err
		}
		sleep.For(ctx, 50*time.Millisecond)
	}
}

// mayPass reports whether a failed start may be retried: another process took the free port, or the last processes of a
// killed server still exist.
func mayPass(err error, newPort bool) bool {
	return strings.Contains(err.Error(), "Address already in use") && newPort ||
		strings.Contains(err.Error(), "pre-existing shared memory block") || strings.Contains(err.Error(),
		`lock file "postmaster.pid" already exists`)
}

func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	before, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.data(), "-p", strconv.Itoa(s.port))
	cmd.Stdout, cmd.Stderr = log, log
	p, err := StartProcess(cmd)
	if err != nil {
		return fmt.Errorf("start PostgreSQL %d: %w", s.major, err)
	}
	for {
		conn, err := pgx.Connect(ctx, s.URL("", ""))
		if err == nil {
			_ = conn.Close(ctx)
			s.mu.Lock()
			s.process = p
			s.mu.Unlock()
			return nil
		}
		select {
		case <-p.Done:
			return fmt.Errorf("start PostgreSQL %d: it ended with %w: %s", s.major, p.err, s.logFrom(before))
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGQUIT)
			<-p.Done
			return fmt.Errorf("start PostgreSQL %d: no connection (%w): %s", s.major, err, s.logFrom(before))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop stops the server and waits for its end; Resume restarts it. It does nothing if the server is stopped.
func (s *Server) Stop(mode Mode) error {
	p := s.running()
	if p == nil {
		if s.bin == "" {
			return errors.New("cannot stop an external server")
		}
		return nil
	}
	sig := map[Mode]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT, Killed: syscall.SIGKILL}[mode]
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the server: %w", err)
	}
	s.mu.Lock()
	s.process = nil
	s.mu.Unlock()
	select {
	case <-p.Done:
		return nil
	case <-time.After(stopTimeout):
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done
		return fmt.Errorf("the server did not stop within %s and was killed: %s", stopTimeout, s.logFrom(0))
	}
}

// Restart stops the server and starts it again. If it was Killed, unflushed data is lost.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	if err := s.Stop(mode); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Close ends the server and removes its data. An external server stays, without the roles and databases made here.
func (s *Server) Close() error {
	if s.bin == "" {
		return s.leave()
	}
	return s.remove()
}

func (s *Server) remove() error {
	err := s.Stop(Immediate)
	return errors.Join(err, os.RemoveAll(s.dir), s.lock.Close(), s.reserved.Close())
}

// Major returns the major version, e.g. 18.
func (s *Server) Major() int { return s.major }

// Addr returns the address the server listens on, host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// Log returns the path of the server's log.
func (s *Server) Log() string { return filepath.Join(s.dir, "server.log") }

// breakdown matches a log line about a crashed server process, after which all sessions lose their connections. The
// next line, DETAIL, has the statement.
var breakdown = regexp.MustCompile(`(?m)^.*(?: PANIC: |was terminated by signal |all server processes terminated).*$`)

// Broke returns an error with the crashes in a server's log, and the lines before the first; nil: none.
func (s *Server) Broke() error {
	if s.bin == "" {
		return nil
	}
	log, err := os.ReadFile(s.Log())
	if err != nil {
		return err
	}
	at := breakdown.FindIndex(log)
	if at == nil {
		return nil
	}
	const before, after = 2000, 2000
	return fmt.Errorf("PostgreSQL %d crashed:\n...%s", s.major, log[max(0, at[0]-before):min(len(log), at[1]+after)])
}

// Bin returns the folder with the server's programs: psql, pg_recvlogical, ...
func (s *Server) Bin() string { return s.bin }

// PID returns the process id of the server, 0 while it is stopped.
func (s *Server) PID() int {
	if p := s.running(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// URL returns a connection string, with password. No database means the maintenance database, no user the superuser;
// others must be roles made by this package.
func (s *Server) URL(database, user string) string { return s.URLVia(s.Addr(), database, user) }

// URLVia is URL for a proxy in front of the server, at host:port.
func (s *Server) URLVia(addr, database, user string) string {
	database = cmp.Or(database, s.database)
	password := s.roleWord
	if user == "" || user == s.admin {
		user, password = s.admin, s.password
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(user, password), Host: addr, Path: "/" + database,
		RawQuery: s.params,
	}
	return u.String()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) running() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	select {
	case <-s.process.Done: // it ended by itself
		s.process = nil
	default:
	}
	return s.process
}

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return asServer(ctx, filepath.Join(s.bin, program), args...)
}

// asServer makes a command that runs as the servers' user.
func asServer(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/" // that user may not be able to enter our working directory
	cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = Unprivileged()
	return cmd
}

// logFrom returns the log after an offset.
func (s *Server) logFrom(offset int64) string {
	b, err := os.ReadFile(s.Log())
	if err != nil {
		return err.Error()
	}
	b = b[min(int(offset), len(b)):]
	const most = 4000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return strings.TrimSpace(string(b))
}

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

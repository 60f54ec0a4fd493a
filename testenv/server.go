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

	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

const (
	// of initdb and start, and of a database; a busy disk takes seconds, a busy machine more
	startTimeout = 5 * time.Minute
	stopTimeout  = 3 * time.Minute

	// Superuser is the first role of a server that Start made.
	Superuser = "postgres"
	// Owner owns the databases that DB makes and what lies in them. It may replicate, and is no superuser.
	Owner = "embedsidecar_owner"
)

// Mode is how a server is made to stop.
type Mode int

// The ways to stop, friendliest first.
const (
	Fast      Mode = iota // ends sessions, writes a checkpoint: what restarts and upgrades do
	Immediate             // no checkpoint: recovery at the next start
	Killed                // SIGKILL, as by the kernel when memory ran out
)

// Options says what server Start makes. The zero value is usable.
type Options struct {
	Major  int               // 0: PGBIN's, else the newest there is
	Config map[string]string // settings beyond those of this package, which already suit logical replication
	Port   int               // 0: a free one
	Fsync  bool              // off by default: a killed process loses nothing by it, only a killed machine
}

// Server is a PostgreSQL server for tests. Its methods are safe for concurrent use, but for Stop, Resume, Restart and
// Close, which one goroutine at a time may call.
type Server struct {
	major    int
	host     string
	port     int
	admin    string // a superuser
	password string // of the superuser
	roleWord string // password of every role made here
	database string // where the superuser connects when no database is named
	params   string // of the connection string

	bin  string // "" for a server that was there before
	dir  string // of ours: holds data and server.log
	lock *os.File

	reserved *reservation // of the port; nil: not yet, or the port was named

	mu      sync.Mutex
	process *Process // nil while stopped

	copies    bool       // databases are copied as files: the WAL, which every slot reads, has nothing of them
	prepare   sync.Mutex // guards making the template
	template  string
	databases counter
}

// Start makes a server with one superuser on a port of 127.0.0.1 and waits until it takes connections. Run as root,
// it lives as "nobody", because PostgreSQL refuses root. Close removes it with all its data; it ends with this
// process anyway.
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
		copies: major >= 15 && !o.Fsync, // 14 knows no other way; it takes checkpoints, which cost where they are synced
	}
	if err := s.create(ctx, o); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.Resume(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// Own starts a server that no other test uses: it may be stopped, restarted and configured. It ends with the test.
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
	// Passwords, not trust: everybody on this machine can reach the port, and a superuser can run programs.
	initdb := s.command(ctx, "initdb", "-N", "-D", s.data(), "-U", Superuser, "-A", "scram-sha-256", "--pwfile", passwords,
		"-E", "UTF8", "--locale", "C.UTF-8")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb of PostgreSQL %d in %s: %w: %s", s.major, s.dir, err, out)
	}
	config := map[string]string{
		"listen_addresses": "127.0.0.1",
		// A path of a socket may have 107 bytes, and temporary folders are longer on some systems.
		"unix_socket_directories": "",
		// Not in /dev/shm, of which a container has 64 MB: a killed server would leave its share there for ever.
		"dynamic_shared_memory_type": "mmap",
		"wal_level":                  "logical",
		// As many as parallel tests may come to need, however many CPUs let them run at a time.
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
		config["scram_iterations"] = "1" // the password is random; tests make connections by the hundred
	}
	if !o.Fsync {
		config["fsync"] = "off"
		config["full_page_writes"] = "off"
		config["wal_init_zero"] = "off"
	}
	maps.Copy(config, o.Config)
	return s.Configure(config)
}

// Configure adds settings that hold from the next start on, or from pg_reload_conf() where the server allows that.
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

// Crash kills a server and starts it again: what it had not flushed is lost.
func (s *Server) Crash(ctx context.Context) error {
	if err := s.Stop(Killed); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Resume starts a server that was stopped, on the port that it had before, and waits until it takes connections.
func (s *Server) Resume(ctx context.Context) error {
	if s.bin == "" {
		return errors.New("the server is not ours to start")
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
			_ = s.reserved.Close() // one that somebody else had taken all the same
			s.port, s.reserved = reserved.port, reserved
		}
		err := s.launch(ctx)
		if err == nil || ctx.Err() != nil || !mayPass(err, first) {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// mayPass reports whether a start that did not work may work when it is tried again: somebody else was given the free
// port, or the last processes of a killed server are still there.
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

// Stop stops the server and waits for its end; Resume starts it again. Stopping a stopped server does nothing.
func (s *Server) Stop(mode Mode) error {
	p := s.running()
	if p == nil {
		if s.bin == "" {
			return errors.New("the server is not ours to stop")
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

// Restart stops the server and starts it again.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	if err := s.Stop(mode); err != nil {
		return err
	}
	return s.Resume(ctx)
}

// Close ends the server and removes its data. A server that was there before stays, without the roles and databases
// made here.
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

// breakdown is a line of a server's log that tells that one of its processes ended as none should, for which all
// others lose their connections. DETAIL, the line after it, names the statement.
var breakdown = regexp.MustCompile(`(?m)^.*(?: PANIC: |was terminated by signal |all server processes terminated).*$`)

// Broke returns an error that tells what a server's log says of its own breakdowns, and what came before the first;
// nil: there was none.
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
	return fmt.Errorf("PostgreSQL %d broke down:\n...%s", s.major, log[max(0, at[0]-before):min(len(log), at[1]+after)])
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

// asServer makes a command that runs as the user that servers run as.
func asServer(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/" // our own folder may be closed to that user
	cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = Unprivileged()
	return cmd
}

// logFrom returns the end of the log after an offset.
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

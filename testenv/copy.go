package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Copy makes a second server from the data of this one, which must be stopped, as a backup or a standby. The copy has
// the same databases, roles and passwords. Resume starts it, on a new port.
func (s *Server) Copy(ctx context.Context) (*Server, error) {
	if s.bin == "" {
		return nil, errors.New("cannot copy an external server")
	}
	if s.running() != nil {
		return nil, errors.New("copy the server: stop it first")
	}
	dir, lock, err := makeDir(filepath.Dir(s.dir) != sharedMemory)
	if err != nil {
		return nil, fmt.Errorf("copy the server: %w", err)
	}
	c := &Server{
		major: s.major, host: s.host, admin: s.admin, password: s.password, roleWord: s.roleWord, database: s.database,
		params: s.params, bin: s.bin, dir: dir, lock: lock, copies: s.copies,
	}
	if out, err := asServer(ctx, "/bin/cp", "-a", s.data(), c.data()).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("copy the server: %w: %s", err, out), c.remove())
	}
	return c, nil
}

// Follow makes an unstarted copy a streaming standby of its original, with this application name and slot. An empty
// slot means none.
func (s *Server) Follow(primary *Server, name, slot string) error {
	u, err := url.Parse(primary.URL("", ""))
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	u.RawQuery += "&application_name=" + url.QueryEscape(name)
	// Slot synchronisation needs a database in the connection string.
	if err := s.Configure(map[string]string{
		"primary_conninfo": u.String(), "primary_slot_name": slot, "hot_standby": "on",
		"hot_standby_feedback": "on",
	}); err != nil {
		return err
	}
	// A base backup does not contain replication slots, but a copied folder does.
	slots, err := filepath.Glob(filepath.Join(s.data(), "pg_replslot", "*"))
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	for _, slot := range slots {
		if err := os.RemoveAll(slot); err != nil {
			return fmt.Errorf("follow: %w", err)
		}
	}
	return s.signal("standby.signal")
}

// signal creates a signal file, such as standby.signal.
func (s *Server) signal(name string) error {
	file := filepath.Join(s.data(), name)
	return errors.Join(os.WriteFile(file, nil, 0o600), GiveAway(file))
}

// Recover makes an unstarted copy start like a restored backup, on a new timeline.
func (s *Server) Recover() error {
	if err := s.Configure(map[string]string{"restore_command": "/bin/false"}); err != nil {
		return err
	}
	return s.signal("recovery.signal")
}

// Promote promotes a standby, to a new timeline, and waits until it is done.
func (s *Server) Promote(ctx context.Context) error {
	var done bool
	err := s.on(ctx, "", func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT pg_promote(true, 300)").Scan(&done)
	})
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if !done {
		return errors.New("promote: the server is still a standby after 300 s")
	}
	return nil
}

// Upgrade makes a server of a newer major version from the data of this one, which must be stopped, by pg_upgrade. The
// new server is running and has the same databases, roles and passwords.
func (s *Server) Upgrade(ctx context.Context, major int) (*Server, error) {
	if s.bin == "" || s.running() != nil {
		return nil, errors.New("upgrade the server: it is not ours, or runs")
	}
	u, err := Start(ctx, Options{Major: major})
	if err != nil {
		return nil, err
	}
	err = u.upgradeFrom(ctx, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("upgrade the server: %w", err), u.Close()) //nolint:contextcheck // it ends also after ctx has
	}
	u.password, u.roleWord = s.password, s.roleWord
	return u, u.Resume(ctx)
}

func (s *Server) upgradeFrom(ctx context.Context, old *Server) error {
	if err := s.Stop(Fast); err != nil {
		return err
	}
	// Trust is safe here: only this user can reach the sockets that pg_upgrade makes.
	for _, server := range []*Server{old, s} {
		path := filepath.Join(server.data(), "pg_hba.conf")
		rules, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append([]byte("local all all trust\n"), rules...), 0o600)
		}
		if err != nil {
			return err
		}
	}
	commands := []*exec.Cmd{
		s.command(ctx, "pg_upgrade", "-b", old.bin, "-B", s.bin, "-d", old.data(), "-D", s.data(), "-U", s.admin),
	}
	if s.major >= 18 && old.major < 18 { // which has checksums unless it is told
		commands = append([]*exec.Cmd{old.command(ctx, "pg_checksums", "--enable", "-D", old.data())}, commands...)
	}
	for _, cmd := range commands {
		cmd.Dir = s.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd.Path, err, out)
		}
	}
	return nil
}

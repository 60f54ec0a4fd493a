package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/embedsidecar/embedsidecar/plugins/host"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

const (
	startSlow = 10 * time.Second // worth a warning
	// bareTimeout is how long a program may take to refuse to run: interpreters load libraries first.
	bareTimeout = 20 * time.Second
	// strangerTimeout is how long an unauthorized client waits for an answer.
	strangerTimeout = 3 * time.Second
	// unknownVersion is an unsupported version of the protocol.
	unknownVersion = "1000"
)

func checkStart(ctx context.Context, t *tester) Check {
	began := time.Now()
	p, err := t.plugin(ctx)
	if err != nil {
		//nolint:nilerr // it is in the report
		return fail("this is the sidecar's error message: fix what it names", "%s", err)
	}
	took := time.Since(began)
	t.started, t.about = true, p.Description()
	d := t.about
	described := t.describe(ctx, p, "Describe")
	for _, m := range described.GetModels() {
		t.symmetric = t.symmetric || m.GetName() == d.Model && m.GetSymmetric()
	}
	if took > t.patience(startSlow) {
		return warn("the host waits 60 s, or call_timeout if that is more: load less before the handshake, or cache what is computed at each start",
			"it took %s", took.Round(time.Millisecond))
	}
	return pass("%s %s, model %s with %d dims, after %s", d.Plugin, d.Version, d.Model, d.Dims,
		took.Round(time.Millisecond))
}

// bareRun is the behaviour of a program that was started without a host.
type bareRun struct {
	line   string // its first line on standard output
	stderr string
	ended  bool
	status int
}

// bare starts the program with an environment and waits until it prints a line, exits, or times out.
func (t *tester) bare(ctx context.Context, environ ...string) (bareRun, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience(bareTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, t.opts.Path, t.opts.Args...)
	for key, value := range t.opts.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Env = append(cmd.Env, environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = t.patience(time.Second)
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return bareRun{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return bareRun{}, err
	}
	if err := cmd.Start(); err != nil {
		return bareRun{}, err
	}
	lines := make(chan string, 1)
	go func() {
		line, err := bufio.NewReaderSize(io.LimitReader(out, 64<<10), 4<<10).ReadString('\n')
		if err == nil || line != "" {
			lines <- strings.TrimSpace(line)
		}
		close(lines)
	}()
	var run bareRun
	select {
	case line, spoke := <-lines: // a line, or the end of its output
		run.line, run.ended = line, !spoke
	case <-ctx.Done():
	}
	if !run.ended {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = lifeline.Close()
	stopped := time.AfterFunc(bareTimeout, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err = cmd.Wait()
	stopped.Stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		run.status = exit.ExitCode()
	}
	run.stderr = strings.TrimSpace(stderr.String())
	return run, nil
}

func checkCookie(ctx context.Context, t *tester) Check {
	run := must(t.bare(ctx))
	advice := fmt.Sprintf("at start, unless the variable %s is %s, print to standard error that this is a plugin of embedsidecar and end with status 1",
		pluginpb.MagicCookieKey, pluginpb.MagicCookieValue)
	switch {
	case strings.Count(run.line, "|") >= 4:
		return fail(advice, "started without the cookie it still made the handshake")
	case !run.ended && run.line == "":
		return fail(advice, "started without the cookie it neither ended nor said anything within %s", bareTimeout)
	case run.ended && run.status == 0:
		return fail(advice, "started without the cookie it ended with status 0, as if all were well")
	case run.stderr == "" && run.line == "":
		return warn(advice, "started without the cookie it ended with status %d and no word", run.status)
	}
	return pass("started without the cookie it ended with status %d and said why", run.status)
}

func checkVersion(ctx context.Context, t *tester) Check {
	_, cert, err := host.NewCertificate()
	if err != nil {
		abandon(err)
	}
	dir := must(os.MkdirTemp(t.opts.TempDir, "conformance-"))
	defer func() { _ = os.RemoveAll(dir) }()
	run := must(t.bare(ctx, pluginpb.MagicCookieKey+"="+pluginpb.MagicCookieValue, pluginpb.LifelineKey+"="+
		pluginpb.LifelineStdin,
		"PLUGIN_PROTOCOL_VERSIONS="+unknownVersion, "PLUGIN_CLIENT_CERT="+string(cert), "PLUGIN_UNIX_SOCKET_DIR="+dir))
	advice := fmt.Sprintf("PLUGIN_PROTOCOL_VERSIONS lists the versions that the host speaks, by commas: unless %d is among them, say so on standard error and end with status 1",
		pluginpb.ProtocolVersion)
	parts := strings.Split(run.line, "|")
	switch {
	case len(parts) > 1 && parts[1] == unknownVersion:
		return fail(advice, "it claims to speak version %s", unknownVersion)
	case len(parts) > 1:
		return pass("offered version %s only, it answers with version %s, which such a host refuses", unknownVersion,
			parts[1])
	case !run.ended:
		return fail(advice, "offered version %s only, it neither ended nor said anything", unknownVersion)
	case run.stderr == "" || run.status == 0:
		return warn(advice, "offered version %s only, it ended with status %d and no word", unknownVersion, run.status)
	}
	return pass("offered version %s only, it ended with status %d and said why", unknownVersion, run.status)
}

func checkStrangers(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	certificate, _, err := host.NewCertificate()
	if err != nil {
		abandon(err)
	}
	advice := "serve with TLS, require a client certificate, and accept the one in PLUGIN_CLIENT_CERT only"
	connect := func(mine ...tls.Certificate) credentials.TransportCredentials {
		//nolint:gosec // the plugin's identity does not matter here
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: mine})
	}
	for how, creds := range map[string]credentials.TransportCredentials{
		"without TLS":                insecure.NewCredentials(),
		"without a certificate":      connect(),
		"with a foreign certificate": connect(certificate),
	} {
		if err := t.health(ctx, p.Socket(), creds); err == nil {
			return fail(advice, "a program that connects %s is served", how)
		}
	}
	return pass("connections without TLS, without a certificate and with a foreign one are refused")
}

// health calls the plugin's Health over a new connection.
func (t *tester) health(ctx context.Context, socket string, creds credentials.TransportCredentials) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience(strangerTimeout))
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginpb.NewEmbedderClient(conn).Health(ctx, &pluginpb.HealthRequest{})
	return err
}

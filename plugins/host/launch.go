package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// maxDescription is the size limit of a description in bytes; a thousand models fit.
const maxDescription = 1 << 20

// exitTimeout is the limit of the wait for a killed program. The kernel frees its memory before it is gone.
const exitTimeout = 30 * time.Second

// launch starts the program and reads its description. Its errors are *embed.Error that wrap a *StartError.
func (s *processSlot) launch(ctx context.Context) (*instance, error) {
	inst, err := s.tryLaunch(ctx)
	if err == nil {
		return inst, nil
	}
	var whole *embed.Error
	if !errors.As(err, &whole) {
		whole = unavailable(0, err)
	}
	start := &StartError{Plugin: s.opts.Name, Path: s.opts.Path, Err: whole.Err}
	if inst != nil {
		inst.process.kill("it could not be started")
		inst.client.Kill()
		start.Stderr = s.out.Last()
	}
	return nil, &embed.Error{Class: whole.Class, Code: whole.Code, RetryAfter: whole.RetryAfter, Err: start}
}

// tryLaunch is launch without the cleanup. With an error, it returns the instance if there is something to clean up.
func (s *processSlot) tryLaunch(ctx context.Context) (*instance, error) {
	h := s.host
	file, err := openVerified(s.opts)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // a started program has its own copy
	sockets, err := h.socketFolder()
	if err != nil {
		if isResource(err) {
			return nil, &embed.Error{Class: embed.Resource, Code: "resource", Err: err}
		}
		return nil, configuration("sockets", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout, s.startTimeout())
	defer cancel()
	s.out.forget()

	certificate, certificatePEM, err := NewCertificate()
	if err != nil {
		return nil, err
	}
	inst := &instance{slot: s}
	var startErr error // the system's error; go-plugin returns only its text
	inst.client = goplugin.NewClient(s.config(inst, file, sockets, certificate, certificatePEM, &startErr))
	if _, err := inst.client.Start(); err != nil {
		switch {
		case inst.process == nil:
			return nil, err
		case inst.process.pid == 0:
			return inst, systemError(startErr, err)
		}
		return inst, s.explainStart(ctx, inst.process, err)
	}
	hello, _ := inst.process.Hello()
	if err := checkHello(hello); err != nil {
		return inst, err
	}
	if err := inst.connect(); err != nil {
		return inst, configuration("handshake", err)
	}
	if inst.desc, err = s.describe(ctx, inst); err != nil {
		return inst, err
	}
	return inst, inst.prove(ctx)
}

// config is the go-plugin configuration of an instance.
func (s *processSlot) config(inst *instance, file *os.File, sockets string, certificate tls.Certificate, pem []byte,
	startErr *error,
) *goplugin.ClientConfig {
	h := s.host
	return &goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: pluginpb.ProtocolVersion, MagicCookieKey: pluginpb.MagicCookieKey,
			MagicCookieValue: pluginpb.MagicCookieValue,
		},
		Plugins: goplugin.PluginSet{}, // connect makes the client itself
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, socketDir string) (runner.Runner, error) {
			env := append(spec.Env, pluginpb.LifelineKey+"="+pluginpb.LifelineStdin, clientCertKey+"="+string(pem))
			inst.process = newProcess(s.opts, s.out, file, env, socketDir)
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.closed {
				return nil, errClosed
			}
			s.launching = inst.process
			return &startRecorder{inst.process, startErr}, nil
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		// As AutoMTLS, with another certificate. go-plugin adds the plugin's certificate.
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, ServerName: "localhost",
			MinVersion: tls.VersionTLS12,
		},
		SkipHostEnv:      true,
		StartTimeout:     s.opts.StartTimeout,
		Logger:           hclog.NewNullLogger(), // this package logs the same events
		SyncStdout:       &splitter{to: s.out},
		SyncStderr:       &splitter{to: s.out},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: sockets},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(redacting(s.opts.Redact)),
			grpc.WithChainStreamInterceptor(streaming(s.opts.Redact)),
			grpc.WithMaxHeaderListSize(maxStatus),
			// The default windows of 64 KiB cost a round trip for every 40 vectors.
			grpc.WithInitialWindowSize(4 << 20), grpc.WithInitialConnWindowSize(16 << 20),
			grpc.WithReadBufferSize(128 << 10), grpc.WithWriteBufferSize(128 << 10),
			// The limit of what go-plugin itself receives (its stdio stream). Calls of Embed set their own limit.
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxDescription)),
		},
	}
}

// startRecorder keeps the error of Start.
type startRecorder struct {
	*process
	err *error
}

func (r *startRecorder) Start(ctx context.Context) error {
	*r.err = r.process.Start(ctx)
	return *r.err
}

// connect makes the client of the plugin's service. Nothing is sent yet.
func (i *instance) connect() error {
	protocol, err := i.client.Client()
	if err != nil {
		return err
	}
	connected, ok := protocol.(*goplugin.GRPCClient)
	if !ok {
		return fmt.Errorf("go-plugin returned a %T", protocol)
	}
	i.conn, i.rpc = connected.Conn, pluginpb.NewEmbedderClient(connected.Conn)
	return nil
}

// systemError classifies the system's error when it cannot start the program.
func systemError(err, wrapped error) error {
	if err == nil {
		return wrapped
	}
	switch {
	case isResource(err):
		return &embed.Error{Class: embed.Resource, Code: "resource", Err: err}
	case errors.Is(err, syscall.ETXTBSY):
		return unavailable(0, fmt.Errorf("the file is being written: %w", err))
	case errors.Is(err, os.ErrNotExist):
		return configuration("not_executable",
			fmt.Errorf("the file exists, but the interpreter or loader that it names does not: %w", err))
	case errors.Is(err, syscall.ENOEXEC):
		return configuration("not_executable",
			fmt.Errorf("the file is not a program for this machine; a script needs the full path of its interpreter in its first line, as #!/opt/my-model/.venv/bin/python: %w", err))
	}
	return configuration("not_executable",
		fmt.Errorf("the file cannot be run; is its file system mounted noexec?: %w", err))
}

// explainStart says why a started program did not complete the handshake.
func (s *processSlot) explainStart(ctx context.Context, p *process, err error) error {
	p.kill("its handshake failed")
	waitExit(p, exitTimeout)
	if hello, spoke := p.Hello(); spoke {
		if wrong := checkHello(hello); wrong != nil {
			return wrong
		}
		return configuration("handshake", errors.New(withoutTexts(s.opts.Redact(err.Error()), nil)))
	}
	s.host.mu.Lock()
	closed := s.host.closed
	s.host.mu.Unlock()
	state, _ := p.ending()
	switch {
	case closed:
		return unavailable(0, errClosed)
	case ctx.Err() != nil:
		return unavailable(0, context.Cause(ctx))
	case state != nil && state.Exited():
		return configuration("start", fmt.Errorf("it ended with %s before the handshake", state))
	case state != nil:
		return unavailable(0, fmt.Errorf("it was killed before the handshake (%s)", state))
	}
	return unavailable(0, errors.New("it was killed but has not exited"))
}

func (s *processSlot) startTimeout() error {
	return fmt.Errorf("it took more than %s to start", s.opts.StartTimeout)
}

// waitExit waits for a program that is ending. It reports whether the program has ended within the limit.
func waitExit(p *process, limit time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

// checkHello checks the handshake line for mistakes that go-plugin accepts or explains badly.
func checkHello(line string) error {
	parts := strings.Split(line, "|")
	switch {
	case len(parts) < 5:
		return configuration("handshake",
			fmt.Errorf("it printed %q instead of go-plugin's handshake: is it a plugin? If so, something in it prints to standard output too early", withoutTexts(line, nil)))
	case parts[1] != fmt.Sprint(pluginpb.ProtocolVersion):
		return configuration("protocol_version",
			fmt.Errorf("it speaks version %s of the protocol, this program version %d: install the plugin that belongs to this program",
				withoutTexts(parts[1], nil), pluginpb.ProtocolVersion))
	case parts[4] != string(goplugin.ProtocolGRPC):
		return configuration("handshake", fmt.Errorf("it speaks %q, want gRPC", withoutTexts(parts[4], nil)))
	case len(parts) < 6 || len(parts[5]) <= 50: // go-plugin's own check
		return configuration("handshake", errors.New("it names no certificate, so it does not know go-plugin's AutoMTLS"))
	}
	return nil
}

// describe reads the plugin's description and checks it against the options and the first description.
func (s *processSlot) describe(ctx context.Context, inst *instance) (embed.Description, error) {
	resp, err := inst.rpc.Describe(ctx, &pluginpb.DescribeRequest{}, grpc.MaxCallRecvMsgSize(maxDescription))
	if err != nil {
		return embed.Description{}, s.explainDescribe(ctx, inst, err)
	}
	desc, err := describe(resp, s.opts.Model)
	if err != nil {
		return embed.Description{}, err
	}
	s.host.mu.Lock()
	first := s.host.first
	s.host.mu.Unlock()
	if first != nil && (first.Fingerprint != desc.Fingerprint || first.Dims != desc.Dims || first.Sparse != desc.Sparse ||
		first.Reranks != desc.Reranks) {
		return embed.Description{}, configuration("fingerprint",
			fmt.Errorf("model %q was %s with %d dims and is now %s with %d dims: "+
				"vectors of both must not mix; restore the former plugin and model, or use the new ones in a pipeline with another destination",
				desc.Model, first.Fingerprint, first.Dims, desc.Fingerprint, desc.Dims))
	}
	return desc, nil
}

// explainDescribe classifies a failed Describe.
func (s *processSlot) explainDescribe(ctx context.Context, inst *instance, err error) error {
	p, code := inst.process, status.Code(err)
	if callerGaveUp(ctx, code) != nil { // the caller is the start itself
		return unavailable(0, s.startTimeout())
	}
	// Either the plugin returned this status, or it died.
	if (code == codes.Unavailable || code == codes.Canceled) && !inst.alive(ctx) && p.gone() {
		state, _ := p.ending()
		if state.Exited() && p.killedFor() == "" {
			return configuration("start", fmt.Errorf("it ended with %s when asked to describe itself", state))
		}
		return unavailable(0, fmt.Errorf("it ended (%s) when asked to describe itself", state))
	}
	whole := fromStatus(err, nil)
	if whole.Class == embed.Configuration || whole.Class == embed.Data {
		whole.Class, whole.Code = embed.Configuration, "describe"
	}
	whole.Err = fmt.Errorf("it could not describe itself: %w", whole.Err)
	return whole
}

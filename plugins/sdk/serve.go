package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// parentCheck is how often a plugin without a lifeline checks whether its parent is still the same.
const parentCheck = 500 * time.Millisecond

// Serve runs the plugin and returns when the host asks it to end; the caller then returns from main. It exits when the
// host is gone. It exits with status 1 if no host started the program, or one without a common protocol version.
func Serve(impl Embedder) {
	ServeServer(NewServer(impl, os.Stderr))
}

// ServeServer is Serve for your own gRPC service; see NewServer.
func ServeServer(srv pluginpb.EmbedderServer) {
	nameProcess()
	if os.Getenv(pluginpb.MagicCookieKey) == pluginpb.MagicCookieValue {
		if err := agree(os.Getenv(offeredKey)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: error: %s\n", filepath.Base(os.Args[0]), err)
			os.Exit(1)
		}
		go endWithHost(os.Getenv(pluginpb.LifelineKey) == pluginpb.LifelineStdin, os.Getppid())
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{
			pluginpb.ProtocolVersion: {pluginpb.PluginName: &grpcPlugin{srv: srv}},
		},
		Logger: hclog.NewNullLogger(),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			// The default windows of 64 KiB cost a round trip for every 40 vectors.
			return grpc.NewServer(append(opts,
				grpc.UnaryInterceptor(keepOutput(os.Stdout, os.Stderr)),
				grpc.MaxRecvMsgSize(pluginpb.MaxMessageBytes),
				grpc.MaxSendMsgSize(pluginpb.MaxMessageBytes),
				grpc.InitialWindowSize(4<<20),
				grpc.InitialConnWindowSize(16<<20),
				grpc.ReadBufferSize(128<<10),
				grpc.WriteBufferSize(128<<10),
			)...)
		},
	})
}

// offeredKey is go-plugin's variable with the host's protocol versions, separated by commas.
const offeredKey = "PLUGIN_PROTOCOL_VERSIONS"

// agree returns an error if host and plugin have no common protocol version. go-plugin would still serve and leave the
// error to the host. An old host names no versions.
func agree(offered string) error {
	if offered == "" {
		return nil
	}
	for version := range strings.SplitSeq(offered, ",") {
		if strings.TrimSpace(version) == strconv.Itoa(pluginpb.ProtocolVersion) {
			return nil
		}
	}
	return fmt.Errorf("this plugin speaks version %d of the plugin protocol, the program that started it only %q: "+
		"install the plugin that belongs to that program, or the program that belongs to this plugin",
		pluginpb.ProtocolVersion, offered)
}

// keepOutput restores standard output and error at the first call. go-plugin replaces them with streams inside the
// connection, which lose a program's last output, such as why it died.
func keepOutput(stdout, stderr *os.File) grpc.UnaryServerInterceptor {
	var once sync.Once
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		once.Do(func() { os.Stdout, os.Stderr = stdout, stderr })
		return handler(ctx, req)
	}
}

// handshake returns the handshake in go-plugin's form.
func handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion:  pluginpb.ProtocolVersion,
		MagicCookieKey:   pluginpb.MagicCookieKey,
		MagicCookieValue: pluginpb.MagicCookieValue,
	}
}

// grpcPlugin registers the service with go-plugin.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	srv pluginpb.EmbedderServer
}

var _ goplugin.GRPCPlugin = (*grpcPlugin)(nil)

func (p *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterEmbedderServer(s, p.srv)
	return nil
}

func (p *grpcPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin has no client side")
}

// endWithHost ends the process, and its children, when the host is gone. The lifeline detects every kind of death
// immediately. For a host without one (another program that uses go-plugin) it polls the parent's process id, which
// changes when the parent dies.
func endWithHost(lifeline bool, parent int) {
	if lifeline {
		_, _ = io.Copy(io.Discard, os.Stdin)
	} else {
		tick := time.NewTicker(parentCheck)
		defer tick.Stop()
		for os.Getppid() == parent {
			<-tick.C
		}
	}
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(1)
}

// nameProcess names the process after its file: if a host starts a verified file through its descriptor, the name is
// "3". Linux only; elsewhere the file does not exist.
func nameProcess() {
	f, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(filepath.Base(os.Args[0]))
}

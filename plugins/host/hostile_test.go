package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// hostileKey makes the test binary a hostile plugin, of the kind that its value names.
const hostileKey = "EMBEDSIDECAR_PLUGIN_HOSTILE"

func hostile(t *testing.T, how string, more ...string) *host.Host {
	t.Helper()
	o := options(map[string]string{hostileKey: how})
	for i := 0; i < len(more); i += 2 {
		o.Env[more[i]] = more[i+1]
	}
	o.Path = os.Args[0]
	return open(t, o)
}

// harm is the service of a hostile plugin.
type harm struct {
	pluginpb.UnimplementedEmbedderServer

	how string
}

const harmDims = 4

func (harm) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	return &pluginpb.DescribeResponse{Name: "harm", Models: []*pluginpb.Model{
		{Name: "harm", Fingerprint: "harm", Dims: harmDims, Batches: true},
	}}, nil
}

func (h harm) Embed(_ context.Context, r *pluginpb.EmbedRequest) (*pluginpb.EmbedResponse, error) {
	out := answered(len(r.GetTexts()))
	if h.how == "outcomes" { // as many as fit
		list := make([]byte, 0, 2*len(out.GetVectors()))
		for len(list) < 2*len(out.GetVectors()) {
			list = protowire.AppendBytes(protowire.AppendTag(list, 4, protowire.BytesType), nil)
		}
		out.Vectors = nil
		out.ProtoReflect().SetUnknown(list)
	}
	return out, nil
}

func answered(texts int) *pluginpb.EmbedResponse {
	raw := make([]byte, 0, 4*harmDims*texts)
	for range harmDims * texts {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(1))
	}
	return &pluginpb.EmbedResponse{Dims: harmDims, Vectors: raw}
}

func (h harm) PollBatch(context.Context, *pluginpb.PollBatchRequest) (*pluginpb.BatchStatus, error) {
	const words = "the server says: the patient is called Mallory"
	if h.how == "fails" {
		return nil, status.Error(codes.Internal, words)
	}
	return &pluginpb.BatchStatus{Job: "1", State: pluginpb.BatchState_BATCH_STATE_FAILED, Message: words}, nil
}

func (h harm) FetchBatch(_ *pluginpb.FetchBatchRequest,
	stream grpc.ServerStreamingServer[pluginpb.FetchBatchResponse],
) error {
	switch h.how {
	case "endless":
		for {
			if err := stream.Send(&pluginpb.FetchBatchResponse{Ids: []string{"again"}, Answer: answered(1)}); err != nil {
				return err
			}
		}
	case "hollow":
		for {
			if err := stream.Send(&pluginpb.FetchBatchResponse{Answer: answered(0)}); err != nil {
				return err
			}
		}
	}
	return status.Error(codes.FailedPrecondition, "the key "+os.Getenv("EMBEDSIDECAR_PLUGIN_API_KEY")+" is wrong")
}

type harmPlugin struct {
	goplugin.NetRPCUnsupportedPlugin

	harm harm
}

func (p harmPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterEmbedderServer(s, p.harm)
	return nil
}

func (harmPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin has no client")
}

// beHostile serves until the host ends it.
func beHostile(how string) int {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{
			ProtocolVersion: pluginpb.ProtocolVersion, MagicCookieKey: pluginpb.MagicCookieKey,
			MagicCookieValue: pluginpb.MagicCookieValue,
		},
		VersionedPlugins: map[int]goplugin.PluginSet{
			pluginpb.ProtocolVersion: {pluginpb.PluginName: harmPlugin{harm: harm{how: how}}},
		},
		Logger: hclog.NewNullLogger(),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.StreamInterceptor(flood))...)
		},
	})
	return 0
}

// flood offers the host connections through go-plugin's broker, each of which the host would store.
func flood(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/plugin.GRPCBroker/") {
		return next(srv, stream)
	}
	for id := uint64(1); ; id++ {
		offer := &emptypb.Empty{}
		offer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), id))
		if err := stream.SendMsg(offer); err != nil {
			return err
		}
	}
}

// The host refuses go-plugin's broker: each offer of a connection would stay in memory for a while.
func TestP9_APluginOffersNoConnections(t *testing.T) {
	h := hostile(t, "broker")
	for range 500 {
		if _, err := h.Embed(t.Context(), embed.Document, []string{"a"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > 1000 {
		t.Errorf("%d goroutines wait for what the plugin offers", n)
	}
}

// A plugin cannot return more results than a job can have texts.
func TestP9_ResultsOfABatchJobEnd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"endless", "hollow"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			got := 0
			err := hostile(t, how).Fetch(t.Context(), "1", func(string, embed.Result) error {
				if got++; got > 4*embed.MaxJobTexts {
					return errors.New("there is no end")
				}
				return nil
			})
			wantError(t, err, embed.Data, "bad_answer")
		})
	}
}

// A plugin's message about a job may quote texts, which the host does not know at that point.
func TestTrust_WordsAboutBatchJobsQuoteNoRow(t *testing.T) {
	t.Parallel()
	job, err := hostile(t, "speaks").Poll(t.Context(), "1", "1")
	if err != nil || strings.Contains(job.Message, "Mallory") {
		t.Errorf("%+v, %v", job, err)
	}
	_, err = hostile(t, "fails").Poll(t.Context(), "1", "1")
	if err == nil || strings.Contains(err.Error(), "Mallory") {
		t.Error(err)
	}
}

// Secrets are also removed from the final status of a stream.
func TestTrust_AStreamLetsOutNoKey(t *testing.T) {
	t.Parallel()
	const key = "canary-of-a-key"
	err := hostile(t, "speaks", "EMBEDSIDECAR_PLUGIN_API_KEY", key).Fetch(t.Context(), "1",
		func(string, embed.Result) error { return nil })
	if err == nil || strings.Contains(err.Error(), key) {
		t.Error(err)
	}
}

// An answer of a valid size may hold millions of small messages, each of which takes sixty bytes in memory.
func TestP9_AnAnswerOfMillionsOfOutcomes(t *testing.T) {
	h := hostile(t, "outcomes")
	texts := make([]string, 256<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := h.Embed(t.Context(), embed.Document, texts)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Error("it is believed")
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
		t.Errorf("%d MiB were taken for it", took)
	}
}

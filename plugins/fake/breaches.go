package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// breaches are further items of EMBEDSIDECAR_PLUGIN_FAULTS, without a value: answers that look well and are not. What
// a host cannot see by itself, the conformance tester must.
//
//	any-model            serves models that do not exist
//	refuses-unknown      fails calls with fields of a later version
//	query-differs        queries get other vectors than documents, though described as symmetric
//	same-vector          every text gets the same vector
//	reversed             vectors of a batch come backwards
//	reversed-when-busy   ... when another call is under way
//	noise                vectors differ a little each time
//	batch-noise          vectors depend on the size of the batch
//	unsorted             indices of sparse vectors come in no order
//	zero-for-empty       texts without content get a vector of zeros
//	never-truncates      describes 8 tokens and reads all
//	long-kills           a text above 1 MiB kills the process
//	stuck-after-cancel   after a cancelled call none is answered any more
//	stuck-after-deadline after a call whose deadline passed ...
//	health-hangs         Health is never answered
//	not-ready            Health says no
//	prints-texts         texts go to standard error
//	outlives-host        stays when its host goes
//	tokens-in-characters tells where tokens end in characters, not in bytes
//	tokens-vary          leaves the last token out of each second call
//	tokens-cut           tells the first 50 tokens of a text only
//	tokens-die           a text with a byte order mark kills the process, but only there
//	tokens-around        tells of two tokens around a text that no text has
//	any-job              knows every batch job
//	next-version         speaks version 1 with fields of a later one in every message; no fault
var breaches = []string{
	"any-model", "refuses-unknown", "query-differs", "same-vector", "reversed", "reversed-when-busy", "noise",
	"batch-noise", "unsorted",
	"zero-for-empty", "never-truncates", "long-kills", "stuck-after-cancel", "stuck-after-deadline", "health-hangs",
	"not-ready",
	"prints-texts", "outlives-host", "tokens-in-characters", "tokens-vary", "tokens-cut", "tokens-die", "tokens-around",
	"any-job", "next-version",
}

// breaker stands between the host and everything else, and breaks what it is told to.
type breaker struct {
	pluginpb.EmbedderServer
	does map[string]bool
	busy atomic.Int32
	told atomic.Int32 // calls of Tokenize

	mu    sync.Mutex
	calls map[context.Context]bool // under way
	stuck bool                     // no call is answered any more
}

// Describe implements pluginpb.EmbedderServer.
func (b *breaker) Describe(ctx context.Context, req *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	resp, err := b.EmbedderServer.Describe(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, m := range resp.GetModels() {
		if b.does["never-truncates"] {
			m.MaxTokens = 8
		}
		b.age(m)
	}
	b.age(resp)
	return resp, nil
}

// Embed implements pluginpb.EmbedderServer.
func (b *breaker) Embed(ctx context.Context, req *pluginpb.EmbedRequest) (*pluginpb.EmbedResponse, error) {
	b.enter(ctx)
	defer b.leave(ctx)
	busy := b.busy.Add(1) > 1
	defer b.busy.Add(-1)
	if err := b.before(req); err != nil {
		return nil, err
	}
	resp, err := b.EmbedderServer.Embed(ctx, req)
	if err != nil {
		return nil, err
	}
	b.after(req, resp, busy || b.busy.Load() > 1)
	return resp, nil
}

// enter begins a call, which never ends if one was given up in the way that this plugin cannot bear. Calls of one
// connection begin after the news that an earlier one was given up.
func (b *breaker) enter(ctx context.Context) {
	b.mu.Lock()
	for call := range b.calls {
		deadline, _ := call.Deadline()
		b.stuck = b.stuck || b.unbearable(call.Err(), deadline)
	}
	stuck := b.stuck
	b.calls[ctx] = true
	b.mu.Unlock()
	if stuck {
		select {}
	}
}

func (b *breaker) leave(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	deadline, _ := ctx.Deadline()
	b.stuck = b.stuck || b.unbearable(ctx.Err(), deadline)
	delete(b.calls, ctx)
}

// unbearable reports whether a call was given up in the way that leaves this plugin stuck. A client that gives up at
// its deadline says so by cancelling; only the deadline itself tells the two apart.
func (b *breaker) unbearable(end error, deadline time.Time) bool {
	if end == nil {
		return false
	}
	if late := !deadline.IsZero() && time.Until(deadline) < 10*time.Millisecond; late {
		return b.does["stuck-after-deadline"]
	}
	return b.does["stuck-after-cancel"]
}

// before breaks what concerns a request.
func (b *breaker) before(req *pluginpb.EmbedRequest) error {
	if b.does["any-model"] {
		req.Model = "fake"
	}
	if b.does["refuses-unknown"] && len(req.ProtoReflect().GetUnknown()) > 0 {
		return status.Error(codes.InvalidArgument, "a field that is not known")
	}
	for _, text := range req.GetTexts() {
		if b.does["prints-texts"] {
			fmt.Fprintf(os.Stderr, "embedding %q\n", text)
		}
		if b.does["long-kills"] && len(text) > 1<<20 {
			os.Exit(5)
		}
	}
	return nil
}

// after breaks an answer.
func (b *breaker) after(req *pluginpb.EmbedRequest, resp *pluginpb.EmbedResponse, busy bool) {
	width, count := int(resp.GetDims())*4, len(req.GetTexts())
	if s := resp.GetSparse(); s != nil {
		if b.does["unsorted"] {
			slices.Reverse(s.Indices) // backwards, and of other places
		}
		b.age(s)
	}
	row := func(i int) []byte { return resp.GetVectors()[i*width : (i+1)*width] }
	for i, text := range req.GetTexts() {
		if vector.Empty(text) {
			continue
		}
		switch {
		case b.does["same-vector"]:
			clear(row(i))
			push(row(i), 1)
		case b.does["query-differs"] && req.GetKind() == pluginpb.Kind_KIND_QUERY:
			push(row(i), 0.5)
		case b.does["batch-noise"]:
			push(row(i), float32(count)/50)
		case b.does["noise"]:
			push(row(i), rand.Float32()/100) //nolint:gosec // noise
		}
	}
	if b.does["reversed"] || b.does["reversed-when-busy"] && busy {
		turned := make([]byte, 0, len(resp.GetVectors()))
		for i := range count {
			turned = append(turned, row(count-1-i)...)
		}
		resp.Vectors = turned
	}
	if b.does["zero-for-empty"] {
		resp.Outcomes = nil
	}
	for _, o := range resp.GetOutcomes() {
		b.age(o)
		if o.GetError() != nil {
			b.age(o.GetError())
		}
	}
	b.age(resp)
}

// push adds to the first number of a packed vector.
func push(row []byte, by float32) {
	x := math.Float32frombits(binary.LittleEndian.Uint32(row))
	binary.LittleEndian.PutUint32(row, math.Float32bits(x+by))
}

// Health implements pluginpb.EmbedderServer.
func (b *breaker) Health(ctx context.Context, req *pluginpb.HealthRequest) (*pluginpb.HealthResponse, error) {
	if b.does["health-hangs"] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	resp, err := b.EmbedderServer.Health(ctx, req)
	if err == nil && b.does["not-ready"] {
		resp.Ready, resp.Message = false, "told not to be"
	}
	if err == nil {
		b.age(resp)
	}
	return resp, err
}

// age gives a message fields that this version of the contract does not know: a number, and bytes.
func (b *breaker) age(m proto.Message) {
	if !b.does["next-version"] {
		return
	}
	sum := sha256.Sum256([]byte(m.ProtoReflect().Descriptor().FullName()))
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 901, protowire.BytesType), sum[:])
	m.ProtoReflect().SetUnknown(unknown)
}

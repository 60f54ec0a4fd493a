package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// breaches are further items of EMBEDSIDECAR_PLUGIN_FAULTS, without a value. They make answers that look valid but are
// wrong. The conformance tester must detect those that a host cannot.
var breaches = []string{
	"any-model",            // serves unknown models
	"refuses-unknown",      // fails calls with fields of a later version
	"query-differs",        // queries and documents get different vectors, though described as symmetric
	"same-vector",          // every text gets the same vector
	"reversed",             // vectors of a batch come in reverse
	"reversed-when-busy",   // ... during another call
	"noise",                // vectors differ a little each time
	"batch-noise",          // vectors depend on the size of the batch
	"unsorted",             // indices of sparse vectors are unsorted
	"zero-for-empty",       // texts without content get a vector of zeros
	"never-truncates",      // describes a limit of 8 tokens but reads all
	"long-kills",           // a text above 1 MiB kills the process
	"stuck-after-cancel",   // does not answer after a cancelled call
	"stuck-after-deadline", // does not answer after a call whose deadline passed
	"health-hangs",         // Health is never answered
	"not-ready",            // Health says no
	"prints-texts",         // writes texts to standard error
	"outlives-host",        // keeps running when its host ends
	"tokens-in-characters", // reports ends of tokens in characters, not in bytes
	"tokens-vary",          // omits the last token in every second call
	"tokens-cut",           // reports only the first 50 tokens of a text
	"tokens-die",           // a text with a byte order mark kills the process, in Tokenize only
	"tokens-around",        // reports two tokens around a text that do not exist
	"any-job",              // knows every batch job
	"next-version",         // speaks version 1 with fields of a later version in every message; not a fault
}

// breaker wraps the honest embedder and makes answers that the SDK would refuse.
type breaker struct {
	pluginpb.EmbedderServer
	faults
	number atomic.Uint64 // calls so far
	busy   atomic.Int32
	told   atomic.Int32 // calls of Tokenize

	mu    sync.Mutex
	calls map[context.Context]bool // under way
	stuck bool                     // calls are no longer answered
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
	due := b.due()
	resp, err := b.EmbedderServer.Embed(ctx, req)
	if err == nil {
		err = lie(due, req, resp)
	}
	if err != nil {
		return nil, err
	}
	b.after(req, resp, busy || b.busy.Load() > 1)
	return resp, nil
}

// enter begins a call. It blocks forever once an earlier call has left the plugin stuck. A connection delivers the end
// of an earlier call before the next call.
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

// unbearable reports whether a call ended in the way that leaves this plugin stuck. A client also cancels at its
// deadline, so only the deadline distinguishes the two. The plugin's own is later: by the time that the call took to
// arrive.
func (b *breaker) unbearable(end error, deadline time.Time) bool {
	if end == nil {
		return false
	}
	if late := !deadline.IsZero() && time.Until(deadline) < time.Second; late {
		return b.does["stuck-after-deadline"]
	}
	return b.does["stuck-after-cancel"]
}

// before applies the faults of requests.
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

// after applies the faults of answers.
func (b *breaker) after(req *pluginpb.EmbedRequest, resp *pluginpb.EmbedResponse, busy bool) {
	width, count := int(resp.GetDims())*4, len(req.GetTexts())
	if s := resp.GetSparse(); s != nil {
		if b.does["unsorted"] {
			slices.Reverse(s.Indices) // reversed, so with other indices
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

// due counts a call. The function reports whether this call is the Nth one of an item.
func (b *breaker) due() func(item string) bool {
	n := b.number.Add(1)
	return func(item string) bool { return b.every[item] > 0 && n%b.every[item] == 0 }
}

// lie makes an answer invalid, or fails the call.
func lie(due func(item string) bool, req *pluginpb.EmbedRequest, resp *pluginpb.EmbedResponse) error {
	row, several, s := int(resp.Dims)*4, len(req.GetTexts()) > 1, resp.Sparse
	switch {
	case due("permute-every") && several && s != nil:
		row = int(s.Counts[0]) * 4
		s.Counts, s.Indices, s.Values = turn(s.Counts, 1), turn(s.Indices, row), turn(s.Values, row)
	case due("permute-every") && several:
		resp.Vectors = turn(resp.Vectors, row)
	case due("unavailable-every"):
		return sdk.Status(sdk.Again(errors.New("told to be unavailable"+key()), 20*time.Millisecond))
	case due("wrong-count-every") && s != nil:
		s.Counts = s.Counts[1:]
	case due("wrong-count-every"):
		resp.Vectors = resp.Vectors[row:]
	case due("wrong-dims-every"):
		resp.Dims++
		resp.Vectors = make([]byte, len(req.GetTexts())*int(resp.Dims)*4)
	case due("garbage-every"):
		resp.Vectors = append(resp.Vectors, 1, 2, 3)
		resp.Outcomes = append(resp.Outcomes, &pluginpb.Outcome{Index: 1 << 31, Empty: true})
	case due("huge-every"):
		resp.Vectors = make([]byte, 32<<20)
	}
	return nil
}

// turn moves the first part of a list to its end.
func turn[T any](list []T, first int) []T { return append(list[first:], list[:first]...) }

// push changes the first number of a packed vector.
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

// Rerank implements pluginpb.EmbedderServer.
func (b *breaker) Rerank(ctx context.Context, req *pluginpb.RerankRequest) (*pluginpb.RerankResponse, error) {
	resp, err := b.EmbedderServer.Rerank(ctx, req)
	if err == nil && b.due()("permute-every") {
		const one = 4 // bytes of a score
		resp.Scores = turn(resp.Scores, one)
	}
	return resp, err
}

// PollBatch implements pluginpb.EmbedderServer.
func (b *breaker) PollBatch(ctx context.Context, req *pluginpb.PollBatchRequest) (*pluginpb.BatchStatus, error) {
	if b.does["any-job"] {
		return &pluginpb.BatchStatus{Job: "any", State: pluginpb.BatchState_BATCH_STATE_RUNNING}, nil
	}
	return b.EmbedderServer.PollBatch(ctx, req)
}

// Tokenize implements pluginpb.EmbedderServer.
func (b *breaker) Tokenize(ctx context.Context, req *pluginpb.TokenizeRequest) (*pluginpb.TokenizeResponse, error) {
	if b.does["any-model"] {
		req.Model = "fake"
	}
	if b.does["tokens-die"] && slices.ContainsFunc(req.GetTexts(),
		func(text string) bool { return strings.ContainsRune(text, '\ufeff') }) {
		die(syscall.SIGKILL)
	}
	resp, err := b.EmbedderServer.Tokenize(ctx, req)
	if err != nil {
		return nil, err
	}
	shorter := b.told.Add(1)%2 == 0 && b.does["tokens-vary"]
	for i, told := range resp.GetTokens() {
		if b.does["tokens-in-characters"] {
			for k, end := range told.GetEnds() {
				told.Ends[k] = uint32(utf8.RuneCountInString(req.GetTexts()[i][:end]))
			}
		}
		if n := len(told.GetEnds()); shorter && n > 0 {
			told.Ends = told.GetEnds()[:n-1]
		}
		if most := 50; b.does["tokens-cut"] && len(told.GetEnds()) > most {
			told.Ends = told.GetEnds()[:most]
		}
		b.age(told)
	}
	if b.does["tokens-around"] {
		resp.Around = 2
	}
	b.age(resp)
	return resp, nil
}

// age adds fields to a message that are unknown in this version of the contract: a number and bytes.
func (b *breaker) age(m proto.Message) {
	if !b.does["next-version"] {
		return
	}
	sum := sha256.Sum256([]byte(m.ProtoReflect().Descriptor().FullName()))
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
	unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 901, protowire.BytesType), sum[:])
	m.ProtoReflect().SetUnknown(unknown)
}

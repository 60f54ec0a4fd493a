package sdk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// server is the gRPC side of an Embedder.
type server struct {
	pluginpb.UnimplementedEmbedderServer
	impl   Embedder
	stderr io.Writer // for stack traces

	mu     sync.Mutex
	models map[string]Model // from the first successful Describe
}

// NewServer returns the gRPC service of an Embedder. Serve uses it. Use it yourself only to wrap the service, as the
// fake plugin does to return wrong answers. Stack traces of panics go to stderr, without the contents of arguments.
func NewServer(impl Embedder, stderr io.Writer) pluginpb.EmbedderServer {
	return &server{impl: impl, stderr: stderr}
}

func (s *server) Describe(ctx context.Context, _ *pluginpb.DescribeRequest) (resp *pluginpb.DescribeResponse,
	err error,
) {
	defer s.end("Describe", &err)
	info, err := s.describe(ctx)
	if err != nil {
		return nil, err
	}
	resp = &pluginpb.DescribeResponse{Name: info.Name, Version: info.Version}
	for _, m := range info.Models {
		resp.Models = append(resp.Models, &pluginpb.Model{
			Name: m.Name, Fingerprint: m.Fingerprint, Dims: uint32(m.Dims), MaxTokens: uint32(m.MaxTokens),
			Symmetric: m.Symmetric, MaxBatch: uint32(m.MaxBatch), MaxBatchBytes: uint32(m.MaxBatchBytes),
			Deterministic: m.Deterministic, Sparse: m.Sparse, Settings: settings(m.Settings), Reranks: m.Reranks,
			Batches: m.Batches,
		})
	}
	return resp, nil
}

// describe calls Describe and remembers the models.
func (s *server) describe(ctx context.Context) (Info, error) {
	info, err := s.impl.Describe(ctx)
	if err != nil {
		return Info{}, err
	}
	if err := info.check(); err != nil {
		return Info{}, Misconfigured(err)
	}
	models := make(map[string]Model, len(info.Models))
	for _, m := range info.Models {
		models[m.Name] = m
	}
	s.mu.Lock()
	s.models = models
	s.mu.Unlock()
	return info, nil
}

func (s *server) model(ctx context.Context, name string) (Model, error) {
	s.mu.Lock()
	models := s.models
	s.mu.Unlock()
	if models == nil {
		if _, err := s.describe(ctx); err != nil {
			return Model{}, err
		}
		s.mu.Lock()
		models = s.models
		s.mu.Unlock()
	}
	m, ok := models[name]
	if !ok {
		return Model{}, status.Errorf(codes.NotFound, "no model %q", name)
	}
	return m, nil
}

func (s *server) Embed(ctx context.Context, req *pluginpb.EmbedRequest) (resp *pluginpb.EmbedResponse, err error) {
	defer s.end("Embed", &err)
	m, err := s.model(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	if m.Reranks {
		return nil, status.Error(codes.Unimplemented, "the model is a reranker: it makes no vectors")
	}
	kind := Document
	switch req.GetKind() {
	case pluginpb.Kind_KIND_DOCUMENT:
	case pluginpb.Kind_KIND_QUERY:
		kind = Query
	default:
		return nil, status.Errorf(codes.InvalidArgument, "kind %d is not known", req.GetKind())
	}
	if len(req.GetTexts()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no texts")
	}
	answers, err := s.impl.Embed(ctx, m.Name, kind, req.GetTexts())
	if err != nil {
		return nil, err
	}
	return pack(m, len(req.GetTexts()), answers)
}

func (s *server) Health(context.Context, *pluginpb.HealthRequest) (*pluginpb.HealthResponse, error) {
	return &pluginpb.HealthResponse{Ready: true}, nil
}

// end ends a method: an error gets its status, and a panic becomes an INTERNAL error. A panic's value may contain a
// text, so only runtime errors ("index out of range") are passed on.
func (s *server) end(method string, err *error) {
	p := recover()
	if p == nil {
		*err = Status(*err)
		return
	}
	what := fmt.Sprintf("%T", p)
	var re runtime.Error
	if e, ok := p.(error); ok && errors.As(e, &re) {
		what = re.Error()
	}
	_, _ = fmt.Fprintf(s.stderr, "panic in %s: %s\n%s", method, what, debug.Stack())
	*err = status.Errorf(codes.Internal, "panic in %s: %s", method, what)
}

// pack converts answers to the message.
func pack(m Model, count int, answers []Answer) (*pluginpb.EmbedResponse, error) {
	if len(answers) != count {
		return nil, status.Errorf(codes.Internal, "the embedder gave %d answers for %d texts", len(answers), count)
	}
	resp := &pluginpb.EmbedResponse{Dims: uint32(m.Dims), Tokens: make([]uint32, count)}
	if m.Sparse {
		resp.Sparse = &pluginpb.SparseVectors{Counts: make([]uint32, count)}
	} else {
		resp.Vectors = make([]byte, count*m.Dims*4)
	}
	for i := range answers {
		a := &answers[i]
		resp.Tokens[i] = uint32(a.Tokens)
		switch {
		case a.Err != nil:
			resp.Outcomes = append(resp.Outcomes, &pluginpb.Outcome{Index: uint32(i), Error: toError(a.Err)})
			continue
		case a.Empty:
			resp.Outcomes = append(resp.Outcomes, &pluginpb.Outcome{Index: uint32(i), Empty: true})
			continue
		case a.Truncated:
			resp.Outcomes = append(resp.Outcomes, &pluginpb.Outcome{Index: uint32(i), Truncated: true})
		}
		if m.Sparse {
			if err := packSparse(resp.Sparse, m, i, a); err != nil {
				return nil, err
			}
			continue
		}
		if len(a.Vector) != m.Dims || a.Indices != nil {
			return nil, status.Errorf(codes.Internal, "the embedder gave a vector of %d dims for text %d, want %d",
				len(a.Vector), i, m.Dims)
		}
		row := resp.Vectors[i*m.Dims*4 : (i+1)*m.Dims*4]
		for j, x := range a.Vector {
			binary.LittleEndian.PutUint32(row[j*4:], math.Float32bits(x))
		}
	}
	return resp, nil
}

// packSparse adds a sparse vector to the message.
func packSparse(into *pluginpb.SparseVectors, m Model, i int, a *Answer) error {
	if len(a.Vector) != len(a.Indices) {
		return status.Errorf(codes.Internal, "the embedder gave %d numbers and %d indices for text %d", len(a.Vector),
			len(a.Indices), i)
	}
	into.Counts[i] = uint32(len(a.Vector))
	for j, at := range a.Indices {
		if at >= uint32(m.Dims) || j > 0 && at <= a.Indices[j-1] || a.Vector[j] == 0 {
			return status.Errorf(codes.Internal,
				"the embedder gave the number %v for index %d of text %d: indices rise from 0 and are below %d, and no number is zero", a.Vector[j], at, i, m.Dims)
		}
		into.Indices = binary.LittleEndian.AppendUint32(into.Indices, at)
		into.Values = binary.LittleEndian.AppendUint32(into.Values, math.Float32bits(a.Vector[j]))
	}
	return nil
}

// longestMessage is a little more than the host keeps of a message, so that it sees that there was more. gRPC does not
// deliver a status with a message of 64 KiB: the host gets INTERNAL for it, whatever its code was.
const longestMessage = 320

// short cuts a message, and makes it valid UTF-8: other strings cannot be sent.
func short(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), longestMessage)], "?")
}

func toError(e *TextError) *pluginpb.Error {
	out := &pluginpb.Error{Message: short(e.Message)}
	switch e.Class {
	case RetryLater:
		out.Class = pluginpb.ErrorClass_ERROR_CLASS_RETRY_LATER
		out.DelayMs = uint32(min(max(e.Delay, 0), time.Hour).Milliseconds())
	case TooLong:
		out.Class = pluginpb.ErrorClass_ERROR_CLASS_TOO_LONG
	case Refused:
		out.Class = pluginpb.ErrorClass_ERROR_CLASS_REFUSED
	case Invalid:
		out.Class = pluginpb.ErrorClass_ERROR_CLASS_INVALID
	}
	return out
}

// Status converts an error to the status code that the contract assigns to its class. A status and a context error keep
// their code. A long message is cut. NewServer's service calls it for every error.
func Status(err error) error {
	if err == nil {
		return nil
	}
	var call *callError
	if !errors.As(err, &call) {
		st, ok := status.FromError(err)
		if !ok {
			st = status.FromContextError(err) // UNKNOWN for others
		}
		said := st.Proto()
		said.Message = short(said.GetMessage())
		return status.ErrorProto(said)
	}
	st := status.New(call.code, short(err.Error()))
	if call.delay > 0 {
		if detailed, derr := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(call.delay)}); derr == nil {
			st = detailed
		}
	}
	return st.Err()
}

func settings(list []embed.Setting) []*pluginpb.Setting {
	return lists.Map(list, func(s embed.Setting) *pluginpb.Setting {
		return &pluginpb.Setting{Name: s.Name, Value: s.Value, Source: s.Source}
	})
}

// Reranker is implemented by an Embedder that offers models with Reranks.
type Reranker interface {
	// Rerank returns one score for each text, in order: the better a text answers the query, the larger its score.
	// Scores of different queries are not comparable. Texts and errors are as in Embed; the query is not empty.
	Rerank(ctx context.Context, model, query string, texts []string) ([]float32, error)
}

// Rerank answers for an Embedder that is a Reranker.
func (s *server) Rerank(ctx context.Context, req *pluginpb.RerankRequest) (resp *pluginpb.RerankResponse, err error) {
	defer s.end("Rerank", &err)
	m, err := s.model(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	impl, ok := s.impl.(Reranker)
	if !ok || !m.Reranks {
		return nil, status.Error(codes.Unimplemented, "the model is no reranker: it gives no scores")
	}
	if req.GetQuery() == "" || len(req.GetTexts()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no query, or no texts")
	}
	scores, err := impl.Rerank(ctx, m.Name, req.GetQuery(), req.GetTexts())
	if err != nil {
		return nil, err
	}
	if len(scores) != len(req.GetTexts()) {
		return nil, status.Errorf(codes.Internal, "the reranker gave %d scores for %d texts", len(scores), len(req.GetTexts()))
	}
	resp = &pluginpb.RerankResponse{Scores: make([]byte, 0, 4*len(scores))}
	for _, score := range scores {
		resp.Scores = binary.LittleEndian.AppendUint32(resp.Scores, math.Float32bits(score))
	}
	return resp, nil
}

// Tokens are the ends of the tokens of some texts.
type Tokens = embed.Tokens

// Tokenizer may be implemented by an Embedder: long texts are then cut into chunks by the model's own tokens, not by an
// estimate.
type Tokenizer interface {
	// Tokenize returns the ends of all tokens of the texts, of any length. Texts and errors are as in Embed.
	Tokenize(ctx context.Context, model string, texts []string) (Tokens, error)
}

// Tokenize answers for an Embedder that is a Tokenizer.
func (s *server) Tokenize(ctx context.Context, req *pluginpb.TokenizeRequest) (resp *pluginpb.TokenizeResponse,
	err error,
) {
	defer s.end("Tokenize", &err)
	impl, ok := s.impl.(Tokenizer)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this plugin does not tell where tokens end")
	}
	m, err := s.model(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	if len(req.GetTexts()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no texts")
	}
	tokens, err := impl.Tokenize(ctx, m.Name, req.GetTexts())
	if err != nil {
		return nil, err
	}
	if len(tokens.Ends) != len(req.GetTexts()) {
		return nil, status.Errorf(codes.Internal, "the embedder returned tokens for %d texts, want %d", len(tokens.Ends),
			len(req.GetTexts()))
	}
	resp = &pluginpb.TokenizeResponse{
		Tokens: make([]*pluginpb.Tokens, len(tokens.Ends)),
		Around: uint32(max(tokens.Around, 0)),
	}
	for i, ends := range tokens.Ends {
		packed := make([]uint32, len(ends))
		for k, end := range ends {
			if end < 0 || end > len(req.GetTexts()[i]) || k > 0 && end < ends[k-1] {
				return nil, status.Errorf(codes.Internal, "the embedder returned a token that ends at byte %d of a text of %d bytes",
					end, len(req.GetTexts()[i]))
			}
			packed[k] = uint32(end)
		}
		resp.Tokens[i] = &pluginpb.Tokens{Ends: packed}
	}
	return resp, nil
}

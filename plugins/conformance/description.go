package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Limits of the time that Health may take.
const (
	healthSlow    = 250 * time.Millisecond
	healthTimeout = 2 * time.Second
)

func checkDescribe(ctx context.Context, t *tester) Check {
	first := t.describe(ctx, must(t.plugin(ctx)), "Describe")
	second := t.describe(ctx, t.run, "the second Describe")
	if !proto.Equal(first, second) {
		return fail("Describe must tell the same each time: no clock, no counter in it", "two calls of Describe differ")
	}
	var short []string
	for _, m := range first.GetModels() {
		fingerprint := m.GetFingerprint()
		switch {
		case m.GetDims() < 1 || m.GetDims() > pluginpb.MaxDims && !m.GetSparse() || m.GetDims() > pluginpb.MaxSparseDims:
			return fail("dims is the width of every vector, 1 to 16,000; of a sparse model the size of its vocabulary, 1 to 16,777,216", "model %q has %d dims", m.GetName(), m.GetDims())
		case fingerprint == "" || len(fingerprint) > 256 || strings.ContainsFunc(fingerprint,
			func(r rune) bool { return r < ' ' || r > '~' }):
			return fail("a fingerprint is 1 to 256 printable ASCII characters", "model %q has a fingerprint that is none",
				m.GetName())
		case len(fingerprint) < 8:
			short = append(short, fmt.Sprintf("%q", fingerprint))
		}
	}
	t.stop()
	p, err := t.plugin(ctx)
	if err != nil {
		abandon(fmt.Errorf("started again: %w", err))
	}
	third := t.describe(ctx, p, "Describe after a restart")
	if !proto.Equal(first, third) {
		return fail("make the fingerprint a hash of contents: no time, no process id, no path, no random number; the sidecar refuses a plugin that comes back with another",
			"after a restart it describes itself differently")
	}
	switch {
	case len(short) > 0:
		return warn("make the fingerprint a hash over everything that can change a vector, or another model will one day have the same",
			"the fingerprint %s is short", strings.Join(short, ", "))
	case first.GetVersion() == "":
		return warn("set version: it is shown to operators and in metrics", "it names no version")
	}
	return pass("%d models, the same after a restart", len(first.GetModels()))
}

func (t *tester) describe(ctx context.Context, p *host.Inspection, what string) *pluginpb.DescribeResponse {
	answer, err := p.Client().Describe(ctx, &pluginpb.DescribeRequest{})
	if err != nil {
		abandon(t.explain(ctx, err, what, 0))
	}
	return answer
}

func checkHealth(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	working, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The result does not matter here.
		_, _ = p.Client().Embed(working, t.request(embed.Document, sentences(2, t.batch(256))))
	}()
	defer func() { cancel(); <-done }()
	var longest time.Duration
	timeout := t.patience(healthTimeout)
	for range 5 {
		began := time.Now()
		asked, stop := context.WithTimeout(ctx, timeout)
		answer, err := p.Client().Health(asked, &pluginpb.HealthRequest{})
		stop()
		longest = max(longest, time.Since(began))
		switch {
		case status.Code(err) == codes.DeadlineExceeded:
			return fail("serve Health on a thread that Embed never occupies: a plugin without an answer is killed",
				"no answer within %s while a call was under way", timeout)
		case err != nil:
			abandon(t.explain(ctx, err, "Health", timeout))
		case !answer.GetReady():
			t.said.heard("the message of Health", answer.GetMessage())
			return fail("ready means that calls can be taken: after Describe they must be", "it is not ready: %s",
				answer.GetMessage())
		}
	}
	if longest > t.patience(healthSlow) {
		return warn("serve Health on a thread that Embed never occupies", "it took up to %s while a call was under way",
			milliseconds(longest))
	}
	return pass("at most %s while a call was under way", milliseconds(longest))
}

func checkUnknown(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	texts := usualTexts[:1]
	_, err := p.Client().Embed(ctx, &pluginpb.EmbedRequest{
		Model: "no-such-" + t.about.Model,
		Kind:  pluginpb.Kind_KIND_DOCUMENT, Texts: texts,
	})
	if f := t.refusal(strangeModel, err, modelCodes...); f.Verdict != "" {
		return f
	}
	_, err = p.Client().Embed(ctx, &pluginpb.EmbedRequest{Model: t.about.Model, Kind: 99, Texts: texts})
	if f := t.refusal("a kind that does not exist", err, codes.InvalidArgument, codes.Unimplemented); f.Verdict != "" {
		f.Verdict = Warn
		return f
	}
	return pass("a model and a kind that do not exist are refused")
}

func checkFuture(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	req := t.request(embed.Document, usualTexts[:1])
	extra := protowire.AppendTag(nil, 1000, protowire.BytesType)
	req.ProtoReflect().SetUnknown(protowire.AppendString(extra, "of a later version"))
	resp, err := p.Client().Embed(ctx, req)
	if err != nil {
		abandon(t.explain(ctx, err, "a call with a field of a later version", 0))
	}
	must(p.Read(resp, t.about, req.GetTexts()))
	err = p.Conn().Invoke(ctx, "/embedsidecar.plugin.v1.Embedder/MethodOfALaterVersion", &pluginpb.HealthRequest{},
		&pluginpb.HealthResponse{})
	if code := status.Code(err); code != codes.Unimplemented {
		return fail("answer methods that you do not know with UNIMPLEMENTED, as gRPC servers do by themselves",
			"a method of a later version was answered with %s", code)
	}
	must(t.vectors(ctx, embed.Document, usualTexts[:1]))
	return pass("an unknown field is ignored, an unknown method is UNIMPLEMENTED")
}

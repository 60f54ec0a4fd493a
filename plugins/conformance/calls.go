package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// callError is a failed call.
type callError struct {
	what   string
	advice string
}

func (e *callError) Error() string { return e.what }

// ask sends one call and checks its answer as the sidecar does.
func (t *tester) ask(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	p, err := t.plugin(ctx)
	if err != nil {
		return nil, err
	}
	bytes, limit := t.allowed(texts)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := p.Client().Embed(ctx, t.request(kind, texts), grpc.MaxCallRecvMsgSize(pluginpb.MaxMessageBytes))
	if err != nil {
		return nil, t.explain(ctx, err, fmt.Sprintf("a call with %s", size(len(texts), bytes)), limit)
	}
	for _, o := range resp.GetOutcomes() {
		t.said.heard("the error of a text", o.GetError().GetMessage())
	}
	results, err := p.Read(resp, t.about, texts)
	if err != nil {
		return nil, &callError{
			what:   fmt.Sprintf("the sidecar must refuse the answer to a call with %s: %s", size(len(texts), bytes), err),
			advice: "answer with dims as described, exactly count*dims*4 bytes of vectors (a sparse model: a count for each text, and for each number its index, rising, and its value), tokens for none or for all texts, and at most one outcome a text",
		}
	}
	return results, nil
}

// request is a request for vectors.
func (t *tester) request(kind embed.Kind, texts []string) *pluginpb.EmbedRequest {
	req := &pluginpb.EmbedRequest{Model: t.about.Model, Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: texts}
	if kind == embed.Query {
		req.Kind = pluginpb.Kind_KIND_QUERY
	}
	return req
}

// allowed returns the size of texts in bytes, and the time limit of a call with them.
func (t *tester) allowed(texts []string) (bytes int, limit time.Duration) {
	for _, text := range texts {
		bytes += len(text)
	}
	return bytes, t.opts.CallTimeout(len(texts), bytes)
}

// patience is the time limit for something that usually takes at most usual.
func (t *tester) patience(usual time.Duration) time.Duration {
	return time.Duration(t.opts.Patience) * usual
}

// over reports whether a call's deadline has passed, or nearly so: the plugin also knows the deadline, and may report
// it first.
func over(ctx context.Context, limit time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < limit/10
}

// explain makes an error of a failed call. A plugin that did not answer in time is stopped, as by the sidecar.
func (t *tester) explain(ctx context.Context, err error, what string, limit time.Duration) error {
	st := status.Convert(err)
	t.said.heard("the message of status "+st.Code().String(), st.Message())
	out := &callError{}
	if st.Code() == codes.Unavailable || st.Code() == codes.Canceled {
		select {
		case <-t.run.Gone():
		case <-time.After(t.patience(time.Second)):
		case <-ctx.Done():
		}
	}
	select {
	case <-t.run.Gone():
		out.what = fmt.Sprintf("the plugin died during %s: %s", what, t.run.Ending())
		out.advice = "run it in a debugger or read its last output: a text or a call must never end the process"
		return out
	default:
	}
	message := strings.ReplaceAll(st.Message(), canary, "...")
	switch {
	case st.Code() == codes.DeadlineExceeded && over(ctx, limit):
		out.what = fmt.Sprintf("%s had no answer within %s; the sidecar would have killed the plugin", what, limit)
		out.advice = "answer faster, or describe lower limits (max_batch, max_batch_bytes), so that a call is never this long"
		t.stop()
	case st.Code() == codes.ResourceExhausted && host.TooLargeMessage(message):
		out.what = fmt.Sprintf("%s does not fit: %s", what, message)
		out.advice = "raise the server's limit on received and sent messages (64 MiB serves any call), or describe a lower max_batch_bytes"
	default:
		out.what = fmt.Sprintf("%s failed with %s: %s", what, st.Code(), message)
	}
	return out
}

// vectors embeds ordinary texts.
func (t *tester) vectors(ctx context.Context, kind embed.Kind, texts []string) ([][]float32, error) {
	results, err := t.ask(ctx, kind, texts)
	if err != nil {
		return nil, err
	}
	return ordinary(results)
}

// ordinary returns the vectors of ordinary texts, which every model must embed.
func ordinary(results []embed.Result) ([][]float32, error) {
	vectors := make([][]float32, len(results))
	for i, r := range results {
		switch {
		case r.Err != nil:
			return nil, &callError{
				what:   fmt.Sprintf("text %d of %d, an ordinary one, has no vector: %s", i+1, len(results), r.Err),
				advice: "vectors must be finite and not all zero; ordinary words must have one",
			}
		case r.Empty:
			return nil, &callError{
				what:   fmt.Sprintf("text %d of %d, an ordinary one, is called empty", i+1, len(results)),
				advice: "empty is for texts without any token",
			}
		}
		vectors[i] = r.Vector
	}
	return vectors, nil
}

// refusal checks that an invalid call was refused with one of the good codes; the finding is then empty. The first good
// code is the recommended one.
func (t *tester) refusal(of string, err error, good ...codes.Code) Check {
	t.said.heard("the refusal of "+of, status.Convert(err).Message())
	switch code := status.Code(err); {
	case slices.Contains(good, code):
		return Check{}
	case code == codes.OK:
		return fail(fmt.Sprintf("refuse %s with %s: a wrong answer is worse than none", of, good[0]),
			"%s was served", of)
	default:
		return fail(fmt.Sprintf("use %s: other codes mean \"retry\" or \"these texts are the cause\"", good[0]),
			"%s was refused with %s", of, code)
	}
}

// strangeModel must be refused with one of modelCodes (a reranker: not the last one), and an unsupported method with
// one of otherCodes.
const strangeModel = "a model that does not exist"

var (
	modelCodes = []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.Unimplemented}
	otherCodes = []codes.Code{codes.Unimplemented, codes.FailedPrecondition}
)

// batch is the plugin's limit of texts per call, at most n.
func (t *tester) batch(n int) int {
	if t.about.MaxBatch > 0 {
		n = min(n, t.about.MaxBatch)
	}
	return max(1, min(n, maxAnswer/host.VectorBytes(t.about)))
}

// maxAnswer is the sidecar's limit of vectors per call, in bytes.
const maxAnswer = 16 << 20

// bytes is the plugin's limit of bytes per call, at most n.
func (t *tester) bytes(n int) int {
	if t.about.MaxBatchBytes > 0 {
		n = min(n, t.about.MaxBatchBytes)
	}
	return min(n, pluginpb.MaxCallBytes)
}

// split splits texts into calls within the plugin's limits.
func (t *tester) split(texts []string) [][]string {
	var calls [][]string
	most := t.batch(len(texts))
	for len(texts) > 0 {
		n, bytes := 0, 0
		for n < len(texts) && n < most && (n == 0 || bytes+len(texts[n]) <= t.bytes(math.MaxInt)) {
			bytes += len(texts[n])
			n++
		}
		calls, texts = append(calls, texts[:n]), texts[n:]
	}
	return calls
}

// alone returns the vectors of the usual texts, each from its own call.
func (t *tester) alone(ctx context.Context) ([][]float32, error) {
	if t.usual != nil {
		return t.usual, nil
	}
	var list [][]float32
	for _, text := range usualTexts {
		v, err := t.vectors(ctx, embed.Document, []string{text})
		if err != nil {
			return nil, err
		}
		list = append(list, v[0])
	}
	t.usual = list
	return list, nil
}

// Limits of the distance |a-b| / |a| of two vectors. For equal lengths and cosine 0.9999 it is 0.014.
const (
	tiny  = 0.001 // rounding, by another order of additions
	small = 0.0142
)

func (t *tester) distance(a, b []float32) float64 {
	var difference, length float64
	if t.about.Sparse {
		embed.EachPlace(a, b, func(x, y float64) { difference, length = difference+(x-y)*(x-y), length+x*x })
		return math.Sqrt(difference / length)
	}
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		difference += d * d
		length += float64(a[i]) * float64(a[i])
	}
	return math.Sqrt(difference / length)
}

func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func size(texts, bytes int) string {
	what := fmt.Sprintf("%d texts", texts)
	if texts == 1 {
		what = "one text"
	}
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%s (%.1f MiB)", what, float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%s (%.1f KiB)", what, float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%s (%d bytes)", what, bytes)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

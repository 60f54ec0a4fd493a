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

// callError is a call that came to nothing.
type callError struct {
	what   string
	advice string
	code   codes.Code
}

func (e *callError) Error() string { return e.what }

// ask sends one call and reads its answer as the sidecar does.
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
			what:   fmt.Sprintf("a call with %s was answered by what the sidecar must refuse: %s", size(len(texts), bytes), err),
			advice: "answer with dims as described, exactly count*dims*4 bytes of vectors (a sparse model: a count for each text, and for each number its index, rising, and its value), tokens for none or for all texts, and at most one outcome a text",
		}
	}
	return results, nil
}

// request is one for vectors.
func (t *tester) request(kind embed.Kind, texts []string) *pluginpb.EmbedRequest {
	req := &pluginpb.EmbedRequest{Model: t.about.Model, Kind: pluginpb.Kind_KIND_DOCUMENT, Texts: texts}
	if kind == embed.Query {
		req.Kind = pluginpb.Kind_KIND_QUERY
	}
	return req
}

// allowed is how many bytes texts have, and how long a call with them may take.
func (t *tester) allowed(texts []string) (bytes int, limit time.Duration) {
	for _, text := range texts {
		bytes += len(text)
	}
	return bytes, t.opts.CallTimeout(len(texts), bytes)
}

// patience is what a plugin gets for something that usually takes at most so long.
func (t *tester) patience(usual time.Duration) time.Duration {
	return time.Duration(t.opts.Patience) * usual
}

// over reports whether the time of a call is up, or as good as: the plugin knows the deadline, too, and may be the
// first to say so.
func over(ctx context.Context, limit time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < limit/10
}

// explain words the failure of a call. A plugin that was silent to the end is stopped, as the sidecar does.
func (t *tester) explain(ctx context.Context, err error, what string, limit time.Duration) error {
	st := status.Convert(err)
	t.said.heard("the message of status "+st.Code().String(), st.Message())
	out := &callError{code: st.Code()}
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
		out.advice = "run it by a debugger or look at its last words: a text or a call must never end the process"
		return out
	default:
	}
	message := strings.ReplaceAll(st.Message(), canary, "...")
	switch {
	case st.Code() == codes.DeadlineExceeded && over(ctx, limit):
		out.what = fmt.Sprintf("%s had no answer within %s; the sidecar would have killed the plugin", what, limit)
		out.advice = "answer faster, or describe lower limits (max_batch, max_batch_bytes), so that a call is never this long"
		t.stop()
	case st.Code() == codes.ResourceExhausted && strings.HasPrefix(message, "grpc: received message"),
		st.Code() == codes.ResourceExhausted && strings.Contains(message, "eceived message larger than max"):
		out.what = fmt.Sprintf("%s does not fit: %s", what, message)
		out.advice = "raise the server's limit on received and sent messages (64 MiB serves any call), or describe a lower max_batch_bytes"
	default:
		out.what = fmt.Sprintf("%s failed with %s: %s", what, st.Code(), message)
	}
	return out
}

// vectors embeds texts that every model must embed.
func (t *tester) vectors(ctx context.Context, kind embed.Kind, texts []string) ([][]float32, error) {
	results, err := t.ask(ctx, kind, texts)
	if err != nil {
		return nil, err
	}
	return ordinary(results)
}

// ordinary are the vectors of texts that every model must embed.
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

// refusal judges how a call was refused that must not be served: by one of the good codes, the first of which is what
// an author should take. The finding is empty then.
func (t *tester) refusal(of string, err error, good ...codes.Code) finding {
	t.said.heard("the refusal of "+of, status.Convert(err).Message())
	switch code := status.Code(err); {
	case slices.Contains(good, code):
		return finding{}
	case code == codes.OK:
		return fail(fmt.Sprintf("refuse %s with %s: an answer that was not asked for is worse than none", of, good[0]),
			"%s was served", of)
	default:
		return fail(fmt.Sprintf("use %s: other codes mean \"again\" or \"these texts are the matter\"", good[0]),
			"%s was refused with %s", of, code)
	}
}

// strangeModel is refused by one of modelCodes, by a reranker without the last; a method that the model does not have
// by one of otherCodes.
const strangeModel = "a model that does not exist"

var (
	modelCodes = []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.Unimplemented}
	otherCodes = []codes.Code{codes.Unimplemented, codes.FailedPrecondition}
)

// batch is how many texts one call may hold, at most n.
func (t *tester) batch(n int) int {
	if t.about.MaxBatch > 0 {
		n = min(n, t.about.MaxBatch)
	}
	return max(1, min(n, maxAnswer/host.VectorBytes(t.about)))
}

// maxAnswer is the largest answer that the sidecar asks for, in bytes of vectors.
const maxAnswer = 16 << 20

// bytes is how many bytes of text one call may hold, at most n.
func (t *tester) bytes(n int) int {
	if t.about.MaxBatchBytes > 0 {
		n = min(n, t.about.MaxBatchBytes)
	}
	return min(n, pluginpb.MaxCallBytes)
}

// split cuts texts into calls that the plugin takes.
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

// alone returns the vectors of the usual texts, each from a call of its own.
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

// Distances between vectors are |a-b| / |a|. Of two vectors of the same length with cosine 0.9999 it is 0.014.
const (
	tiny  = 0.001 // rounding, in another order of additions
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
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
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

package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// query is the query of all rerank calls.
const query = canary + " what stands where " + canary

// scores gets the scores of texts, in calls within the plugin's limits.
func (t *tester) scores(ctx context.Context, texts []string) (all []float32, err error) {
	p, err := t.plugin(ctx)
	if err != nil {
		return nil, err
	}
	for _, call := range t.split(texts) {
		bytes := len(query) * len(call)
		for _, text := range call {
			bytes += len(text)
		}
		limit := t.opts.CallTimeout(len(call), bytes)
		callCtx, cancel := context.WithTimeout(ctx, limit)
		resp, err := p.Client().Rerank(callCtx, &pluginpb.RerankRequest{Model: t.about.Model, Query: query, Texts: call},
			grpc.MaxCallRecvMsgSize(pluginpb.MaxMessageBytes))
		if err != nil {
			err = t.explain(callCtx, err, "a call for the scores of "+size(len(call), bytes), limit)
		}
		cancel()
		if err != nil {
			return nil, err
		}
		scores, err := p.ReadScores(resp, call)
		if err != nil {
			return nil, &callError{
				what: fmt.Sprintf("the sidecar must refuse the answer to a call for the scores of %s: %s",
					size(len(call), bytes), err),
				advice: "give one finite number for each text, in order, packed as little-endian float32",
			}
		}
		all = append(all, scores...)
	}
	return all, nil
}

func checkRerank(ctx context.Context, t *tester) Check {
	if !t.about.Reranks {
		return refusesToRerank(ctx, t)
	}
	texts := slices.Concat(usualTexts, nothing, strangeTexts)
	scores := must(t.scores(ctx, texts))
	backwards := slices.Clone(texts)
	slices.Reverse(backwards)
	again := must(t.scores(ctx, backwards))
	slices.Reverse(again)
	for i := range texts {
		if !sameScore(scores[i], again[i]) {
			return fail("return scores in the order of the texts, not sorted",
				"text %d of %d has the score %g, and %g when the call is made in the opposite order", i+1, len(texts), scores[i],
				again[i])
		}
	}
	for i := range usualTexts {
		alone := must(t.scores(ctx, texts[i:i+1]))
		if !sameScore(scores[i], alone[0]) {
			return fail("a score depends on the query and the text alone: mask what pads shorter ones",
				"text %d has the score %g, and %g when it is alone in its call", i+1, scores[i], alone[0])
		}
	}
	if _, err := t.scores(ctx, []string{long(t.bytes(segment))}); err != nil {
		abandon(fmt.Errorf("a long text: %w", err))
	}
	return t.refusesOthers(ctx, len(texts))
}

// refusesOthers checks that a reranker refuses an unknown model, and calls for vectors.
func (t *tester) refusesOthers(ctx context.Context, scored int) Check {
	ctx, cancel := context.WithTimeout(ctx, t.opts.CallTimeout(1, len(usualTexts[0])))
	defer cancel()
	_, err := t.run.Client().Rerank(ctx, &pluginpb.RerankRequest{
		Model: "no-such-" + t.about.Model, Query: "q", Texts: usualTexts[:1],
	})
	if f := t.refusal(strangeModel, err, codes.NotFound, codes.FailedPrecondition); f.Verdict != "" {
		return f
	}
	_, err = t.run.Client().Embed(ctx, t.request(embed.Document, usualTexts[:1]))
	if f := t.refusal("a call for vectors", err, otherCodes...); f.Verdict != "" {
		return f
	}
	return pass("%d texts, the same in the opposite order and alone", scored)
}

// refusesToRerank checks that an embedder refuses Rerank.
func refusesToRerank(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	ctx, cancel := context.WithTimeout(ctx, t.opts.CallTimeout(1, len(usualTexts[0]))+time.Second)
	defer cancel()
	_, err := p.Client().Rerank(ctx, &pluginpb.RerankRequest{Model: t.about.Model, Query: "q", Texts: usualTexts[:1]})
	if f := t.refusal("Rerank of a model that is no reranker", err, otherCodes...); f.Verdict != "" {
		return f
	}
	return pass("no reranker: it is refused with %s", status.Code(err))
}

// sameScore tolerates differences in the last digits, which other texts in the batch may cause.
func sameScore(a, b float32) bool {
	const near = 1e-3
	return max(a-b, b-a) <= near*max(1, max(a, -a))
}

// checkBatches makes no job, which would cost money and take hours.
func checkBatches(ctx context.Context, t *tester) Check {
	p := must(t.plugin(ctx))
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const nobodys = "conformance-made-none"
	for _, by := range []struct{ what, job string }{{"nonce", ""}, {"name", nobodys}} {
		job, err := p.Client().PollBatch(ctx, &pluginpb.PollBatchRequest{Model: t.about.Model, Nonce: nobodys, Job: by.job})
		if !t.about.Batches {
			if f := t.refusal("PollBatch of a model without batch jobs", err, otherCodes...); f.Verdict != "" {
				return f
			}
			return pass("no batch jobs: it is refused with %s", status.Code(err))
		}
		t.said.heard("the question for a batch job", status.Convert(err).Message())
		if err != nil || job.GetState() != pluginpb.BatchState_BATCH_STATE_UNKNOWN {
			return fail("a job that the provider does not know is no error: answer with the state UNKNOWN",
				"asked for a job by a %s of nobody, it answers %s, %s", by.what, status.Code(err), job.GetState())
		}
	}
	_, err := p.Client().CancelBatch(ctx, &pluginpb.CancelBatchRequest{Model: t.about.Model, Job: nobodys})
	if err != nil {
		return fail("to cancel a job that the provider does not know is no error",
			"asked to cancel a job of nobody, it answers %s", status.Code(err))
	}
	return pass("unknown jobs are handled; no job was made, as it would cost money")
}

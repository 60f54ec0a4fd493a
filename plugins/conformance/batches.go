package conformance

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

func batchChecks() []check {
	return []check{{
		id: "batches", run: checkBatches,
		title:  "a model with batch jobs knows none that nobody made; any other model refuses to be asked",
		advice: "a plugin without batch jobs leaves the methods out (UNIMPLEMENTED)",
	}}
}

// checkBatches makes no job: it would be paid for, and take hours.
func checkBatches(ctx context.Context, t *tester) finding {
	p := must(t.plugin(ctx))
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const nobodys = "conformance-made-none"
	by, err := p.Client().PollBatch(ctx, &pluginpb.PollBatchRequest{Model: t.about.Model, Nonce: nobodys})
	t.said.heard("the question for a batch job", status.Convert(err).Message())
	code := status.Code(err)
	if !t.about.Batches {
		if code == codes.Unimplemented || code == codes.FailedPrecondition {
			return pass("no batch jobs: it is refused with %s", code)
		}
		return fail("answer PollBatch of a model without batch jobs with UNIMPLEMENTED",
			"a model without batch jobs answers %s", code)
	}
	if err != nil || by.GetState() != pluginpb.BatchState_BATCH_STATE_UNKNOWN {
		return fail("a job that the provider does not know is no error: answer with the state UNKNOWN",
			"asked for a job by a nonce of nobody, it answers %s, %s", code, by.GetState())
	}
	named, err := p.Client().PollBatch(ctx, &pluginpb.PollBatchRequest{Model: t.about.Model, Nonce: nobodys, Job: nobodys})
	if err != nil || named.GetState() != pluginpb.BatchState_BATCH_STATE_UNKNOWN {
		return fail("a job that the provider does not know is no error: answer with the state UNKNOWN",
			"asked for a job by a name of nobody, it answers %s, %s", status.Code(err), named.GetState())
	}
	_, err = p.Client().CancelBatch(ctx, &pluginpb.CancelBatchRequest{Model: t.about.Model, Job: nobodys})
	if err != nil {
		return fail("to cancel a job that the provider does not know is no error",
			"asked to cancel a job of nobody, it answers %s", status.Code(err))
	}
	return pass("it knows no job of nobody; none was made, as it would be paid for")
}

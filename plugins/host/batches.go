package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

var _ embed.Batcher = (*Host)(nil)

// Time limits of batch job calls. Their files are large.
const (
	jobTimeout  = 2 * time.Minute
	fileTimeout = 15 * time.Minute
)

// Submit implements embed.Batcher. The methods of that interface return the same errors as Embed. A model without batch
// jobs returns the Configuration error "no_batches", which wraps embed.ErrNoBatches.
func (h *Host) Submit(ctx context.Context, nonce string, ids, texts []string) (job embed.Job, err error) {
	err = h.ofBatches(ctx, texts, fileTimeout, func(ctx context.Context, inst *instance) (err error) {
		job, err = readJob(inst.rpc.SubmitBatch(ctx, &pluginpb.SubmitBatchRequest{
			Model: inst.desc.Model, Nonce: nonce, Ids: ids, Texts: texts,
		}))
		if err == nil && job.ID == "" {
			err = badAnswer("bad_answer", "the plugin returned a batch job without a name")
		}
		return err
	})
	return job, err
}

// Poll implements embed.Batcher.
func (h *Host) Poll(ctx context.Context, nonce, id string) (job embed.Job, err error) {
	err = h.ofBatches(ctx, nil, jobTimeout, func(ctx context.Context, inst *instance) (err error) {
		job, err = readJob(inst.rpc.PollBatch(ctx, &pluginpb.PollBatchRequest{
			Model: inst.desc.Model, Nonce: nonce, Job: id,
		}))
		return err
	})
	return job, err
}

// Fetch implements embed.Batcher.
func (h *Host) Fetch(ctx context.Context, id string, each func(id string, r embed.Result) error) error {
	return h.ofBatches(ctx, nil, fileTimeout, func(ctx context.Context, inst *instance) error {
		stream, err := inst.rpc.FetchBatch(ctx, &pluginpb.FetchBatchRequest{Model: inst.desc.Model, Job: id},
			grpc.MaxCallRecvMsgSize(answerLimit(pluginpb.MaxFetched, inst.desc)), atMost(pluginpb.MaxFetched))
		if err != nil {
			return err
		}
		for given := 0; ; {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			results, err := readPart(part, inst.desc)
			if err != nil {
				return err
			}
			if given += max(len(results), 1); given > 2*embed.MaxJobTexts { //nolint:mnd // a provider may repeat results
				return badAnswer("bad_answer", "the plugin returned more results than a batch job can have texts")
			}
			for i, r := range results {
				if err := each(part.GetIds()[i], r); err != nil {
					return err
				}
			}
		}
	})
}

// Cancel implements embed.Batcher.
func (h *Host) Cancel(ctx context.Context, id string) error {
	return h.ofBatches(ctx, nil, jobTimeout, func(ctx context.Context, inst *instance) error {
		_, err := inst.rpc.CancelBatch(ctx, &pluginpb.CancelBatchRequest{Model: inst.desc.Model, Job: id})
		return err
	})
}

// ofBatches makes one batch job call.
func (h *Host) ofBatches(ctx context.Context, texts []string, limit time.Duration,
	call func(context.Context, *instance) error,
) error {
	p, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { h.release(p) }()
	inst := p.inst
	if !inst.desc.Batches {
		return configuration("no_batches", fmt.Errorf("model %q: %w", inst.desc.Model, embed.ErrNoBatches))
	}
	began := sent{at: time.Now(), limit: limit, memory: inst.memory.Load()}
	callCtx, cancel := context.WithTimeout(ctx, limit)
	err = call(callCtx, inst)
	cancel()
	if _, is := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); is {
		if texts == nil {
			err = aboutRows(err)
		}
		return h.explainCall(ctx, inst, texts, err, began)
	}
	if whole, is := errors.AsType[*embed.Error](err); is && whole.Class == embed.Data {
		h.answeredBadly(inst, began, err)
	}
	return err
}

// words matches the identifiers that APIs use as states and error codes.
var words = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}(: [A-Za-z][A-Za-z0-9_.-]{0,63})?$`)

// withoutRows withholds a message that may quote a text. It is for calls whose texts are not known here, so they cannot
// be compared.
func withoutRows(message string) string {
	if message == "" || words.MatchString(message) {
		return message
	}
	return fmt.Sprintf("(message of %d bytes withheld: it may quote a text)", len(message))
}

// aboutRows applies withoutRows to an error about texts or about an unknown cause.
func aboutRows(err error) error {
	said := status.Convert(err).Proto()
	switch codes.Code(said.GetCode()) { //nolint:exhaustive // the others concern the provider
	case codes.InvalidArgument, codes.OutOfRange, codes.Internal, codes.DataLoss, codes.Unknown:
		said.Message = withoutRows(said.GetMessage())
	}
	return status.ErrorProto(said)
}

// readJob checks a plugin's report of a job.
func readJob(s *pluginpb.BatchStatus, err error) (embed.Job, error) {
	if err != nil {
		return embed.Job{}, err
	}
	states := map[pluginpb.BatchState]embed.JobState{
		pluginpb.BatchState_BATCH_STATE_UNKNOWN: embed.JobUnknown, pluginpb.BatchState_BATCH_STATE_RUNNING: embed.JobRunning,
		pluginpb.BatchState_BATCH_STATE_ENDED: embed.JobEnded, pluginpb.BatchState_BATCH_STATE_FAILED: embed.JobFailed,
	}
	state, known := states[s.GetState()]
	switch name := s.GetJob(); {
	case !known:
		return embed.Job{}, badAnswer("bad_answer", "the plugin reported a batch job in state %d", s.GetState())
	case name != "" && !printable(name, 1, maxFingerprint):
		return embed.Job{}, badAnswer("bad_answer", "the plugin reported a batch job whose name is too long or not printable")
	case name == "" && state != embed.JobUnknown:
		return embed.Job{}, badAnswer("bad_answer", "the plugin reported a batch job without a name")
	}
	return embed.Job{ID: s.GetJob(), State: state, Message: withoutRows(s.GetMessage())}, nil
}

// readPart checks one message of job results.
func readPart(part *pluginpb.FetchBatchResponse, d embed.Description) ([]embed.Result, error) {
	n := len(part.GetIds())
	if n > pluginpb.MaxFetched {
		return nil, badAnswer("bad_answer", "the plugin returned %d results in one message, want %d", n, pluginpb.MaxFetched)
	}
	b, results := batchOf(make([]string, n)), make([]embed.Result, n) // of texts that are not known here
	b.bytes = embed.MaxJobBytes
	return results, readAnswer(part.GetAnswer(), d, b, results)
}

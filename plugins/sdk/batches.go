package sdk

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Job is the state of a batch job at its provider.
type Job = embed.Job

// Batcher is implemented by an Embedder that offers models with Batches. Errors are those of Embed.
type Batcher interface {
	// SubmitBatch makes a job of documents with ids. The provider stores the nonce with it.
	SubmitBatch(ctx context.Context, model, nonce string, ids, texts []string) (Job, error)
	// PollBatch returns the state of a job by its name or, if that is empty, by its nonce. For an unknown job the state
	// is embed.JobUnknown, without an error.
	PollBatch(ctx context.Context, model, nonce, job string) (Job, error)
	// FetchBatch passes on the results of an ended job, in any order.
	FetchBatch(ctx context.Context, model, job string, give func(id string, a Answer) error) error
	// CancelBatch cancels a job.
	CancelBatch(ctx context.Context, model, job string) error
}

// batcher returns the Embedder as a Batcher, if the model has batch jobs.
func (s *server) batcher(ctx context.Context, model string) (Batcher, Model, error) {
	m, err := s.model(ctx, model)
	if err != nil {
		return nil, m, err
	}
	impl, ok := s.impl.(Batcher)
	if !ok || !m.Batches {
		return nil, m, status.Error(codes.Unimplemented, "the model has no batch jobs")
	}
	return impl, m, nil
}

// SubmitBatch answers for an Embedder that is a Batcher.
func (s *server) SubmitBatch(ctx context.Context, req *pluginpb.SubmitBatchRequest) (resp *pluginpb.BatchStatus,
	err error,
) {
	defer s.end("SubmitBatch", &err)
	impl, m, err := s.batcher(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	n, seen := len(req.GetTexts()), map[string]bool{}
	for _, id := range req.GetIds() {
		seen[id] = isName(id)
	}
	if n == 0 || n > embed.MaxJobTexts || n != len(req.GetIds()) || n != len(seen) || !isName(req.GetNonce()) {
		return nil, status.Error(codes.InvalidArgument, "no texts, too many texts for a job, or not one id for each")
	}
	return toStatus(impl.SubmitBatch(ctx, m.Name, req.GetNonce(), req.GetIds(), req.GetTexts()))
}

// isName reports whether a nonce or an id is valid for all providers.
func isName(s string) bool {
	const longest = 64
	return s != "" && len(s) <= longest && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// PollBatch answers for an Embedder that is a Batcher.
func (s *server) PollBatch(ctx context.Context, req *pluginpb.PollBatchRequest) (resp *pluginpb.BatchStatus,
	err error,
) {
	defer s.end("PollBatch", &err)
	impl, m, err := s.batcher(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	if !isName(req.GetNonce()) {
		return nil, status.Error(codes.InvalidArgument, "no nonce")
	}
	return toStatus(impl.PollBatch(ctx, m.Name, req.GetNonce(), req.GetJob()))
}

// toStatus converts a job to the message.
func toStatus(j Job, err error) (*pluginpb.BatchStatus, error) {
	if err != nil {
		return nil, err
	}
	states := map[embed.JobState]pluginpb.BatchState{
		embed.JobUnknown: pluginpb.BatchState_BATCH_STATE_UNKNOWN, embed.JobRunning: pluginpb.BatchState_BATCH_STATE_RUNNING,
		embed.JobEnded: pluginpb.BatchState_BATCH_STATE_ENDED, embed.JobFailed: pluginpb.BatchState_BATCH_STATE_FAILED,
	}
	state, known := states[j.State]
	if !known || j.ID == "" && j.State != embed.JobUnknown {
		return nil, status.Errorf(codes.Internal, "the embedder returned a batch job %q in state %q", j.ID, j.State)
	}
	return &pluginpb.BatchStatus{Job: j.ID, State: state, Message: j.Message}, nil
}

// FetchBatch answers for an Embedder that is a Batcher.
func (s *server) FetchBatch(req *pluginpb.FetchBatchRequest,
	stream grpc.ServerStreamingServer[pluginpb.FetchBatchResponse],
) (err error) {
	defer s.end("FetchBatch", &err)
	ctx := stream.Context()
	impl, m, err := s.batcher(ctx, req.GetModel())
	if err != nil {
		return err
	}
	var (
		ids     []string
		answers []Answer
	)
	send := func() error {
		if len(ids) == 0 {
			return nil
		}
		answer, err := pack(m, len(ids), answers)
		if err == nil {
			err = stream.Send(&pluginpb.FetchBatchResponse{Ids: ids, Answer: answer})
		}
		ids, answers = nil, nil
		return err
	}
	err = impl.FetchBatch(ctx, m.Name, req.GetJob(), func(id string, a Answer) error {
		ids, answers = append(ids, id), append(answers, a)
		if len(ids) < pluginpb.MaxFetched {
			return nil
		}
		return send()
	})
	if err != nil {
		return err
	}
	return send()
}

// CancelBatch answers for an Embedder that is a Batcher.
func (s *server) CancelBatch(ctx context.Context, req *pluginpb.CancelBatchRequest,
) (resp *pluginpb.CancelBatchResponse, err error) {
	defer s.end("CancelBatch", &err)
	impl, m, err := s.batcher(ctx, req.GetModel())
	if err != nil {
		return nil, err
	}
	return &pluginpb.CancelBatchResponse{}, impl.CancelBatch(ctx, m.Name, req.GetJob())
}

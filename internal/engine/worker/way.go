package worker

import "context"

// way is how a pipeline's texts get their vectors: each as a whole, or cut into chunks.
type way struct {
	most, limit int // bytes: what the texts of a batch may take when its rows are first read, and what is asked for
	// embed takes items, of which it is known what they need, to their end.
	embed func(ctx context.Context, items []item, first *room, alone bool) error
	// sample embeds rows again, for Verify.
	sample func(ctx context.Context, report *Report, keys []string) error
}

package embed

import "context"

// All embeds texts in calls within the embedder's limit.
func All(ctx context.Context, e Embedder, about Description, kind Kind, texts []string) ([]Result, error) {
	const most = 256 // texts in one call if the embedder sets no limit
	var results []Result
	for len(texts) > 0 {
		n, bytes := 0, 0
		for n < len(texts) && n < most && (about.MaxBatch == 0 || n < about.MaxBatch) {
			bytes += len(texts[n])
			if n > 0 && about.MaxBatchBytes > 0 && bytes > about.MaxBatchBytes {
				break
			}
			n++
		}
		answers, err := e.Embed(ctx, kind, texts[:n])
		if err != nil {
			return nil, err
		}
		results = append(results, answers...)
		texts = texts[n:]
	}
	return results, nil
}

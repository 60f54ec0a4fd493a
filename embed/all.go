package embed

import "context"

// All embeds texts in calls within the embedder's limit.
func All(ctx context.Context, e Embedder, about Description, kind Kind, texts []string) ([]Result, error) {
	const most = 256 // texts in one call if the embedder sets no limit
	var results []Result
	for len(texts) > 0 {
		n := about.fit(min(len(texts), most), func(i int) string { return texts[i] })
		answers, err := e.Embed(ctx, kind, texts[:n])
		if err != nil {
			return nil, err
		}
		results = append(results, answers...)
		texts = texts[n:]
	}
	return results, nil
}

// fit returns how many of n texts one call may have, at least one.
func (d *Description) fit(n int, text func(i int) string) int {
	if d.MaxBatch > 0 {
		n = min(n, d.MaxBatch)
	}
	bytes := 0
	for i := range n {
		if bytes += len(text(i)); i > 0 && d.MaxBatchBytes > 0 && bytes > d.MaxBatchBytes {
			return i
		}
	}
	return n
}

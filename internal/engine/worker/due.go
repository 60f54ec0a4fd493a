package worker

import (
	"context"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
)

// Due is what a look at every row would find to embed.
type Due struct {
	Report

	Texts  []string  // the beginnings of some of these rows' texts, drawn at random
	Longer []float64 // how many times as long each of them is
}

// FindDue compares every row as Verify does, and reads of so many of those that are to be embedded so many bytes.
func FindDue(ctx context.Context, o Options, most, bytes int) (Due, error) {
	sample := reservoir{limit: most}
	o.Found = func(key string, _ bool) { sample.offer(key) }
	w := New(o)
	var due Due
	var err error
	if due.Report, err = w.Verify(ctx, 0); err != nil {
		return due, err
	}
	for _, key := range sample.keys { // one by one: the texts of all together may be large
		var found []rows.Row
		err := database.UntilUnlocked(ctx, func() (err error) {
			found, err = w.table.Read(ctx, []string{key}, maxChunked)
			return err
		})
		if w.table.OfSomeRow(ctx, err) { // since it was drawn
			continue
		}
		if err != nil {
			return due, w.unverified(err)
		}
		r := &found[0]
		if !r.Wanted() || r.LeftOut() { // its vector is what is left over; or it is too large for anybody
			continue
		}
		text := r.Text
		if len(text) > bytes {
			text = strings.ToValidUTF8(text[:bytes], "")
		}
		due.Texts = append(due.Texts, text)
		due.Longer = append(due.Longer, float64(len(r.Text))/float64(len(text)))
	}
	return due, nil
}

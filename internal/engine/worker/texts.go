package worker

import (
	"context"
)

// embedTexts embeds and writes items: first those whose texts were read, then the others, whose texts are read a few at
// a time.
func (w *Worker) embedTexts(ctx context.Context, items []item, first *room) error {
	if err := w.reuse(ctx, items); err != nil {
		return err
	}
	var group, rest []item
	for i := range items {
		if items[i].lacksText() {
			rest = append(rest, items[i])
		} else {
			group = append(group, items[i])
		}
	}
	if len(group) > 0 {
		if goOn, err := w.embedAndFinish(ctx, group, rest); err != nil || !goOn {
			return err
		}
	}
	if len(rest) == 0 || rest[0].task.IsDirect() {
		return nil
	}
	clear(items)
	first.release()
	for len(rest) > 0 {
		n, size := 1, rest[0].row.Bytes
		for n < len(rest) && size+rest[n].row.Bytes <= largeTexts {
			size += rest[n].row.Bytes
			n++
		}
		if goOn, err := w.embedLarge(ctx, rest[:n], rest[n:], size); err != nil || !goOn {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (w *Worker) embedLarge(ctx context.Context, group, rest []item, size int) (goOn bool, err error) {
	room, err := w.room(ctx, size)
	if err != nil {
		return false, err
	}
	defer room.release()
	found, err := w.look(ctx, tasksOf(group), wholeText)
	if err != nil {
		return false, w.lookFailed(ctx, append(tasksOf(group), tasksOf(rest)...), err)
	}
	if err := w.decideAll(ctx, found); err != nil {
		return false, err
	}
	return w.embedAndFinish(ctx, found, rest)
}

// embedAndFinish embeds and writes a group of items. rest are the following items of the batch; if the embedder fails
// they are postponed, and goOn is false.
func (w *Worker) embedAndFinish(ctx context.Context, group, rest []item) (goOn bool, err error) {
	if err := w.embed(ctx, group); err != nil {
		if !w.unaffordable(err) {
			return false, w.groupFailed(ctx, group, rest, embedderError{err})
		}
		if group = affordable(group); len(group) == 0 {
			return true, nil
		}
	}
	if err := reached(group[0].task, "after-embed"); err != nil {
		return false, err
	}
	return true, w.finish(ctx, group)
}

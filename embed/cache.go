package embed

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"
)

// Key identifies a text of a share for one model. Shares have separate entries: a known text would reveal that another
// share has it, and a vector read from another database may be false. Queries and rows have separate entries, too.
type Key struct {
	Kind  Kind
	Share string            // its name; "": there are no shares
	Asked bool              // a query
	Hash  [sha256.Size]byte // of the text
}

// rowKey identifies a text of a row of the context's share.
func rowKey(ctx context.Context, hash [sha256.Size]byte) Key {
	return Key{Kind: Document, Share: shareOf(ctx).Name, Hash: hash}
}

// Cache is an LRU cache of answers by text, limited in bytes. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	entries map[Key]*list.Element
	order   *list.List // front: most recently used
}

type entry struct {
	key    Key
	answer Result
}

// entryOverhead is the approximate size of an entry without its vector.
const entryOverhead = 250

func (e *entry) size() int64 { return int64(4*len(e.answer.Vector)) + entryOverhead }

// NewCache returns a Cache of at most limit bytes; 0 disables it.
func NewCache(limit int64) *Cache {
	return &Cache{limit: limit, entries: map[Key]*list.Element{}, order: list.New()}
}

// Get returns the answer for a text. Callers must not change its vector.
func (c *Cache) Get(key Key) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return Result{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).answer, true //nolint:errcheck,forcetypeassert // only entries are put in
}

// Put stores an answer. It does not store errors, because the next try may succeed.
func (c *Cache) Put(key Key, answer Result) {
	if answer.Err != nil || answer.Vector == nil && !answer.Empty {
		return
	}
	fresh := &entry{key, answer}
	if fresh.size() > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.order.MoveToFront(e)
		return
	}
	// Copy it: a vector may be a slice of a whole call's memory, which it would keep alive.
	fresh.answer.Vector = append([]float32(nil), answer.Vector...)
	c.entries[key] = c.order.PushFront(fresh)
	for c.used += fresh.size(); c.used > c.limit; {
		e := c.order.Remove(c.order.Back()).(*entry) //nolint:errcheck,forcetypeassert // only entries are put in
		delete(c.entries, e.key)
		c.used -= e.size()
	}
}

// Drop removes the answer for a text.
func (c *Cache) Drop(key Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.order.Remove(e)
		delete(c.entries, key)
		c.used -= e.Value.(*entry).size() //nolint:errcheck,forcetypeassert // only entries are put in
	}
}

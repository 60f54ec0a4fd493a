package embed

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// Cache remembers vectors by the hash of their text, up to a number of bytes; the least recently used go first. It is safe for
// concurrent use.
type Cache struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	entries map[[sha256.Size]byte]*list.Element
	order   *list.List // front: used last
}

type entry struct {
	hash   [sha256.Size]byte
	vector []float32
}

// entryOverhead is about what an entry costs beside its vector.
const entryOverhead = 200

// NewCache returns a Cache of at most limit bytes; 0 remembers nothing.
func NewCache(limit int64) *Cache {
	return &Cache{limit: limit, entries: map[[sha256.Size]byte]*list.Element{}, order: list.New()}
}

// Get returns the vector of a text. Callers must not change it.
func (c *Cache) Get(hash [sha256.Size]byte) ([]float32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[hash]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).vector, true //nolint:errcheck,forcetypeassert // only entries are put in
}

// Put remembers a vector, which must not be changed afterwards.
func (c *Cache) Put(hash [sha256.Size]byte, vector []float32) {
	size := int64(4*len(vector)) + entryOverhead
	if size > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[hash]; ok {
		c.order.MoveToFront(e)
		return
	}
	// A vector may be a slice of a whole answer: keeping it would keep all of that.
	vector = append([]float32(nil), vector...)
	c.entries[hash] = c.order.PushFront(&entry{hash, vector})
	for c.used += size; c.used > c.limit; {
		oldest := c.order.Back()
		e := c.order.Remove(oldest).(*entry) //nolint:errcheck,forcetypeassert // only entries are put in
		delete(c.entries, e.hash)
		c.used -= int64(4*len(e.vector)) + entryOverhead
	}
}

package wordpiece

import (
	"fmt"
	"math/bits"
)

// A trie finds the longest token that a text begins with. Its edges live in one hash table with open addressing: a
// step is one probe or two, and 30,000 tokens need 4 MB.
type trie struct {
	edges []edge  // a power of two of them; at most half are used
	mask  uint32  // len(edges) - 1
	ids   []int32 // by node: the token that ends there, or none
}

type edge struct {
	key  uint32 // 1 + (parent node << 8 | byte); 0: free
	node int32
}

// The two roots: tokens that begin a word, and tokens that go on with it.
const (
	beginRoot int32 = iota
	innerRoot
)

const (
	none     = -1
	maxNodes = 1 << 23 // so that a node and a byte fit an edge's key
)

// newTrie returns a trie with room for that many bytes of tokens.
func newTrie(size int) (*trie, error) {
	if size+2 > maxNodes {
		return nil, fmt.Errorf("vocabulary of %d bytes is over the limit of %d", size, maxNodes-2)
	}
	room := 1 << bits.Len(uint(2*(size+1)))
	return &trie{edges: make([]edge, room), mask: uint32(room - 1), ids: []int32{none, none}}, nil
}

// slot returns where the edge from node over b is, or would be.
func (t *trie) slot(node int32, b byte) *edge {
	key := uint32(node)<<8 | uint32(b)
	h := key * 0x9e3779b1 // Fibonacci hashing
	for i := (h ^ h>>15) & t.mask; ; i = (i + 1) & t.mask {
		if e := &t.edges[i]; e.key == key+1 || e.key == 0 {
			return e
		}
	}
}

// add puts a token under a root.
func (t *trie) add(root int32, token string, id int32) {
	node := root
	for i := range len(token) {
		e := t.slot(node, token[i])
		if e.key == 0 {
			*e = edge{key: (uint32(node)<<8 | uint32(token[i])) + 1, node: int32(len(t.ids))}
			t.ids = append(t.ids, none)
		}
		node = e.node
	}
	t.ids[node] = id
}

// longest returns the longest token under root that text begins with, and its length; none if there is no such token.
func (t *trie) longest(root int32, text []byte) (id int32, length int) {
	id, node := none, root
	for i, b := range text {
		e := t.slot(node, b)
		if e.key == 0 {
			break
		}
		node = e.node
		if t.ids[node] != none {
			id, length = t.ids[node], i+1
		}
	}
	return id, length
}

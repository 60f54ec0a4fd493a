// Package trie finds tokens in text.
package trie

import (
	"fmt"
	"math/bits"
)

// A Trie finds the longest token that a text begins with. Its edges live in one hash table with open addressing: a
// step is one probe or two, and 30,000 tokens need 4 MB.
type Trie struct {
	edges []edge  // a power of two of them; at most half are used
	mask  uint32  // len(edges) - 1
	ids   []int32 // by node: the token that ends there, or None
}

type edge struct {
	key  uint32 // 1 + (parent node << 8 | byte); 0: free
	node int32
}

// The two roots of a vocabulary: tokens that begin a word, and tokens that go on with it.
const (
	Begin int32 = iota
	Inner
)

// None stands for no token.
const None = -1

const maxNodes = 1 << 23 // so that a node and a byte fit an edge's key

// New returns a trie with room for that many bytes of tokens.
func New(size int) (*Trie, error) {
	if size+2 > maxNodes {
		return nil, fmt.Errorf("vocabulary of %d bytes is over the limit of %d", size, maxNodes-2)
	}
	room := 1 << bits.Len(uint(2*(size+1)))
	return &Trie{edges: make([]edge, room), mask: uint32(room - 1), ids: []int32{None, None}}, nil
}

// slot returns where the edge from node over b is, or would be.
func (t *Trie) slot(node int32, b byte) *edge {
	key := uint32(node)<<8 | uint32(b)
	h := key * 0x9e3779b1 // Fibonacci hashing
	for i := (h ^ h>>15) & t.mask; ; i = (i + 1) & t.mask {
		if e := &t.edges[i]; e.key == key+1 || e.key == 0 {
			return e
		}
	}
}

// Add puts a token under a root.
func (t *Trie) Add(root int32, token string, id int32) {
	node := root
	for i := range len(token) {
		e := t.slot(node, token[i])
		if e.key == 0 {
			*e = edge{key: (uint32(node)<<8 | uint32(token[i])) + 1, node: int32(len(t.ids))}
			t.ids = append(t.ids, None)
		}
		node = e.node
	}
	t.ids[node] = id
}

// Longest returns the longest token under root that is a prefix of text, and its length; None if there is none.
func (t *Trie) Longest(root int32, text []byte) (id int32, length int) {
	id, node := None, root
	for i, b := range text {
		e := t.slot(node, b)
		if e.key == 0 {
			break
		}
		node = e.node
		if t.ids[node] != None {
			id, length = t.ids[node], i+1
		}
	}
	return id, length
}

// Prefixes calls found with each token under root that text begins with, shortest first.
func (t *Trie) Prefixes(root int32, text []byte, found func(id int32, length int)) {
	node := root
	for i, b := range text {
		e := t.slot(node, b)
		if e.key == 0 {
			return
		}
		node = e.node
		if t.ids[node] != None {
			found(t.ids[node], i+1)
		}
	}
}

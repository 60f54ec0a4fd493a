package chunk

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// group is units that became one chunk: the first and the last of them.
type group struct{ first, last int }

// beside is how many bytes on each side of a border its turn depends on.
const beside = 64

// join joins neighbouring units as long as they fit, the weakest borders first, and those of one kind in an order
// that follows from the words beside them: as good as random, yet the same wherever the words stand. Parts are joined
// only where one is small, and not with a piece of one that was cut. When it ends, no two pieces of a part that was
// cut would fit together.
func (c *cutter) join() []group {
	type turn struct {
		border border
		order  uint64
		unit   int
	}
	turns := make([]turn, 0, len(c.units))
	for i := 1; i < len(c.units); i++ {
		if b := c.units[i].border; b != hard {
			turns = append(turns, turn{b, c.order(i), i})
		}
	}
	slices.SortFunc(turns, func(x, y turn) int {
		return cmp.Or(cmp.Compare(x.border, y.border), cmp.Compare(x.order, y.order), cmp.Compare(x.unit, y.unit))
	})
	// first of the group that ends with a unit, and last of the one that begins with it
	first, last := make([]int, len(c.units)), make([]int, len(c.units))
	for i := range c.units {
		first[i], last[i] = i, i
	}
	for _, t := range turns {
		left, right := group{first[t.unit-1], t.unit - 1}, group{t.unit, last[t.unit]}
		if c.fits(left, right, t.border) {
			last[left.first], first[right.last] = right.last, left.first
		}
	}
	var groups []group
	for i := 0; i < len(c.units); i = last[i] + 1 {
		groups = append(groups, group{i, last[i]})
	}
	return groups
}

// fits reports whether two neighbouring groups may become one.
func (c *cutter) fits(left, right group, b border) bool {
	limit := c.sections[c.units[left.first].section].limit
	l, r := c.size(left), c.size(right)
	if b == part {
		small := limit / smallShare
		return l+r <= limit && (l < small || r < small) && !c.fragment(left) && !c.fragment(right)
	}
	if inner(c.units[left.first].border) {
		limit -= c.settings.Overlap
	}
	return l+r <= limit
}

// fragment reports whether a group is a piece of a part that had to be cut.
func (c *cutter) fragment(g group) bool {
	return inner(c.units[g.first].border) || g.last+1 < len(c.units) && inner(c.units[g.last+1].border)
}

func (c *cutter) size(g group) int { return c.tokens(c.units[g.first].start, c.units[g.last].end) }

// order is when the border before a unit has its turn.
func (c *cutter) order(i int) uint64 {
	before := strings.TrimSpace(c.text[c.units[i-1].start:c.units[i].start])
	after := strings.TrimSpace(c.text[c.units[i].start:c.units[i].end])
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(before[max(0, len(before)-beside):])
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(after[:min(len(after), beside)])
	return d.Sum64()
}

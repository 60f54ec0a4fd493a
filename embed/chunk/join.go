package chunk

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// group is the first and the last of the units of a chunk.
type group struct{ first, last int }

// beside is how many bytes on each side of a border determine its order.
const beside = 64

// join joins neighbouring units as long as they fit, at the weakest borders first. The order of borders of one kind is
// a hash of the words beside them: pseudo-random, but independent of their position. Parts are joined only if one of
// them is small, and not with a piece of a part that was cut. At the end no two neighbouring pieces of such a part
// would fit together.
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
	// first: of the group that ends with a unit. last: of the group that begins with it.
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

// fragment reports whether a group is a piece of a part that was cut.
func (c *cutter) fragment(g group) bool {
	return inner(c.units[g.first].border) || g.last+1 < len(c.units) && inner(c.units[g.last+1].border)
}

func (c *cutter) size(g group) int { return c.tokens(c.units[g.first].start, c.units[g.last].end) }

// order is the position of the border before a unit in the order of joining.
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

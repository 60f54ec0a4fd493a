package wordpiece

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:generate ./generate.sh

// class is the tokenizer's treatment of a code point.
type class uint8

const (
	letter      class = iota // part of a word, as it is
	removed                  // dropped
	space                    // ends a word
	punctuation              // a word of its own
	alone                    // a Chinese character: a word of its own
	mapped                   // becomes what codes.mapped says
	hangul                   // a syllable: becomes its two or three letters
)

// A mapping is the replacement of a code point.
type mapping struct {
	to    string
	alone bool // stands between spaces
}

// codes holds the treatment of every code point.
type codes struct {
	class  []class // by code point
	mapped map[rune]mapping
}

// The Hangul syllables and their letters; the Unicode standard, section 3.12.
const (
	syllableFirst, syllableLast       = 0xac00, 0xd7a3
	leadFirst, vowelFirst, trailFirst = 0x1100, 0x1161, 0x11a7 // trailFirst stands for "no trailing letter"
	vowels, trails                    = 21, 28
)

// loadCodes parses the generated tables. They are constants, so an error is a bug.
var loadCodes = sync.OnceValues(func() (*codes, error) {
	c := &codes{class: make([]class, utf8.MaxRune+1), mapped: make(map[rune]mapping, 1<<12)}
	for code := syllableFirst; code <= syllableLast; code++ {
		c.class[code] = hangul
	}
	for _, table := range []struct {
		ranges string
		class  class
	}{{punctuationCodes, punctuation}, {aloneCodes, alone}, {removedCodes, removed}, {spaceCodes, space}} {
		if err := c.setRanges(table.ranges, table.class); err != nil {
			return nil, fmt.Errorf("read character tables: %w", err)
		}
	}
	if err := c.setMapped(mappedCodes); err != nil {
		return nil, fmt.Errorf("read character tables: %w", err)
	}
	return c, nil
})

// setRanges gives a class to the code points of a table like "0-8 b-c ad".
func (c *codes) setRanges(ranges string, to class) error {
	for item := range strings.FieldsSeq(ranges) {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		first, err := code(low)
		if err != nil {
			return err
		}
		last, err := code(high)
		if err != nil {
			return err
		}
		for ; first <= last; first++ {
			c.class[first] = to
		}
	}
	return nil
}

// setMapped reads a table like "c0=61,61,_6f.338": what c0, c1 and c2 become, c2 a word of its own.
func (c *codes) setMapped(table string) error {
	for item := range strings.FieldsSeq(table) {
		start, targets, _ := strings.Cut(item, "=")
		from, err := code(start)
		if err != nil {
			return err
		}
		for target := range strings.SplitSeq(targets, ",") {
			var to []rune
			target, isAlone := strings.CutPrefix(target, "_")
			for one := range strings.SplitSeq(target, ".") {
				r, err := code(one)
				if err != nil {
					return err
				}
				to = append(to, r)
			}
			c.class[from] = mapped
			c.mapped[from] = mapping{to: string(to), alone: isAlone}
			from++
		}
	}
	return nil
}

// code reads one code point.
func code(hex string) (rune, error) {
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || n > utf8.MaxRune {
		return 0, fmt.Errorf("code point %q is not one", hex)
	}
	return rune(n), nil
}

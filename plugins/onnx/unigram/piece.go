package unigram

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// A piece is a text during normalization and splitting.
type piece struct {
	text  []byte
	ends  []int // for each byte, the offset in the text after the character that it comes from; nil: not wanted
	first bool  // it is the beginning of the text
}

func newPiece(text string, offset int, ends bool) piece {
	p := piece{text: []byte(text), first: offset == 0}
	if !ends {
		return p
	}
	p.ends = make([]int, len(text))
	for at := range text {
		_, size := utf8.DecodeRuneInString(text[at:])
		for i := range size {
			p.ends[at+i] = offset + at + size
		}
	}
	return p
}

// empty returns an empty piece for the result of a step on p.
func (p piece) empty() piece {
	out := piece{text: make([]byte, 0, len(p.text)+len(p.text)/8), first: p.first}
	if p.ends != nil {
		out.ends = make([]int, 0, cap(out.text))
	}
	return out
}

// put appends the replacement of in's bytes up to end.
func put[T string | []byte](out *piece, in piece, end int, text T) {
	out.text = append(out.text, text...)
	for i := 0; in.ends != nil && i < len(text); i++ {
		out.ends = append(out.ends, in.ends[end-1])
	}
}

// keep appends bytes of in unchanged.
func (p *piece) keep(in piece, begin, end int) {
	p.text = append(p.text, in.text[begin:end]...)
	if in.ends != nil {
		p.ends = append(p.ends, in.ends[begin:end]...)
	}
}

func (p piece) slice(begin, end int) piece {
	out := piece{text: p.text[begin:end], first: p.first && begin == 0}
	if p.ends != nil {
		out.ends = p.ends[begin:end]
	}
	return out
}

func (p piece) strip(left, right bool) piece {
	begin, end := 0, len(p.text)
	if left {
		begin = end - len(bytes.TrimLeftFunc(p.text, unicode.IsSpace))
	}
	if right {
		end = begin + len(bytes.TrimRightFunc(p.text[begin:], unicode.IsSpace))
	}
	return p.slice(begin, end)
}

// replace replaces one text by another.
func (p piece) replace(old, by string) piece {
	out := p.empty()
	for at := 0; at < len(p.text); {
		next := bytes.Index(p.text[at:], []byte(old))
		if next < 0 {
			out.keep(p, at, len(p.text))
			break
		}
		out.keep(p, at, at+next)
		at += next + len(old)
		put(&out, p, at, by)
	}
	return out
}

// joinSpaces replaces two or more spaces by one text.
func (p piece) joinSpaces(by string) piece {
	if !bytes.Contains(p.text, []byte("  ")) {
		return p
	}
	out := p.empty()
	for at := 0; at < len(p.text); {
		end := at
		for end < len(p.text) && p.text[end] == ' ' {
			end++
		}
		if end-at > 1 {
			put(&out, p, end, by)
			at = end
			continue
		}
		out.keep(p, at, at+1)
		at++
	}
	return out
}

func lowercase(p piece) piece {
	out := p.empty()
	for at := 0; at < len(p.text); {
		r, size := utf8.DecodeRune(p.text[at:])
		small := string(unicode.ToLower(r))
		if r == 'İ' { // the only letter that becomes two
			small = "i\u0307"
		}
		at += size
		put(&out, p, at, small)
	}
	return out
}

// splitSpaces returns the words between white space.
func splitSpaces(list []piece) (words []piece) {
	for _, p := range list {
		begin := -1
		for at := 0; at <= len(p.text); {
			r, size := ' ', 1
			if at < len(p.text) {
				r, size = utf8.DecodeRune(p.text[at:])
			}
			switch space := unicode.IsSpace(r); {
			case space && begin >= 0:
				words, begin = append(words, p.slice(begin, at)), -1
			case !space && begin < 0:
				begin = at
			}
			at += size
		}
	}
	return words
}

// metaspace replaces each space by a mark, and adds one before the text.
type metaspace struct {
	mark, scheme string
	split        bool
}

const (
	prependAlways = "always"
	prependFirst  = "first"
)

func (m metaspace) apply(list []piece) (words []piece) {
	for _, p := range list {
		if bytes.IndexByte(p.text, ' ') >= 0 {
			p = p.replace(" ", m.mark)
		}
		if len(p.text) == 0 {
			continue
		}
		wanted := m.scheme == prependAlways || m.scheme == prependFirst && p.first
		if wanted && !bytes.HasPrefix(p.text, []byte(m.mark)) {
			out := p.empty()
			_, size := utf8.DecodeRune(p.text)
			put(&out, p, size, m.mark)
			out.keep(p, 0, len(p.text))
			p = out
		}
		for m.split { // at each mark, which belongs to the word after it
			next := bytes.Index(p.text[1:], []byte(m.mark))
			if next < 0 {
				break
			}
			words, p = append(words, p.slice(0, next+1)), p.slice(next+1, len(p.text))
		}
		words = append(words, p)
	}
	return words
}

// A table is SentencePiece's table of normalisations: a double array, and the texts that its leaves refer to.
type table struct {
	units []uint32
	texts []byte
}

func newTable(data []byte) (*table, error) {
	const word = 4
	if len(data) < word {
		return nil, errors.New("it is empty")
	}
	size := binary.LittleEndian.Uint32(data)
	if size%word != 0 || size == 0 || int64(size) > int64(len(data)-word) {
		return nil, errors.New("it is not whole")
	}
	t := &table{units: make([]uint32, size/word), texts: data[word+size:]}
	for i := range t.units {
		t.units[i] = binary.LittleEndian.Uint32(data[word+i*word:])
	}
	return t, nil
}

// find returns the replacement of a text: that of the table's shortest entry that is a prefix of it, like the
// reference.
func (t *table) find(text []byte) ([]byte, bool) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	at := offset(t.units[0])
	for _, b := range text {
		if b == 0 {
			return nil, false
		}
		at ^= uint32(b)
		if int64(at) >= int64(len(t.units)) {
			return nil, false
		}
		unit := t.units[at]
		const label = 1<<31 | 0xFF
		if unit&label != uint32(b) {
			return nil, false
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if int64(at) >= int64(len(t.units)) {
			return nil, false
		}
		begin := t.units[at] &^ (1 << 31)
		if int64(begin) > int64(len(t.texts)) {
			return nil, false
		}
		to, _, _ := bytes.Cut(t.texts[begin:], []byte{0})
		return to, true
	}
	return nil, false
}

// normalize replaces each grapheme cluster, or, if the table lacks it, its code points.
func (t *table) normalize(p piece) piece {
	const short = 6
	out, at := p.empty(), 0
	for clusters := graphemes.FromBytes(p.text); clusters.Next(); {
		cluster := clusters.Value()
		if len(cluster) < short {
			if to, ok := t.find(cluster); ok {
				at += len(cluster)
				put(&out, p, at, to)
				continue
			}
		}
		for len(cluster) > 0 {
			_, size := utf8.DecodeRune(cluster)
			if to, ok := t.find(cluster[:size]); ok {
				put(&out, p, at+size, to)
			} else {
				out.keep(p, at, at+size)
			}
			at, cluster = at+size, cluster[size:]
		}
	}
	return out
}

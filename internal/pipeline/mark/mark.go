// Package mark writes and reads the logical message that begins a write-back, by which the streamer knows our own
// changes in the WAL again. A mark lists one tag per row, made with a secret of the installation: a tag cannot be
// forged, and it matches only a row that is exactly what the write-back left, in that very transaction, so a copied
// mark hides nothing either.
package mark

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// WriteBack is the prefix of the logical message that begins a write-back; its content is a mark.
const WriteBack = "embedsidecar"

// Wait is the prefix of the logical message, in no transaction, by which somebody who waits asks the streamer to store
// its position; its content says nothing.
const Wait = "embedsidecar.wait"

// TagSize is the length of a tag in bytes, MostTags how many a mark may have: as many as a batch may have rows.
const (
	TagSize  = 8
	MostTags = 10_000
)

const version = 2

// Ours tells of a logical message by its kind, its prefix and the length of its content whether it may be one of ours.
// Anybody may write others, as fast as he can.
func Ours(transactional bool, prefix []byte, content int) bool {
	switch string(prefix) {
	case WriteBack:
		return transactional && content >= 1 && content <= 1+MostTags*TagSize && content%TagSize == 1
	case Wait:
		return !transactional && content == 0
	case Ask:
		return !transactional && content >= textAt && content <= textAt+LongestQuestion
	}
	return false
}

// A Tag stands for one row as a write-back left it.
type Tag [TagSize]byte

// A Maker makes the tags of one transaction. It is not safe for concurrent use.
type Maker struct {
	key []byte
	xid uint32
	buf []byte
}

// NewMaker returns a Maker for the installation's secret and the id of the transaction that writes. In another
// transaction a tag could hide a row that fits it and is stale: a vector may be written over a row that was changed
// since it was read.
func NewMaker(key []byte, xid uint32) *Maker { return &Maker{key: key, xid: xid} }

// Tag returns the tag of a row: its pipeline, its key, and the hashes of its watched columns and of its vector.
func (m *Maker) Tag(pipelineID int32, key string, sourceHash, vectorHash []byte) Tag {
	m.buf = binary.BigEndian.AppendUint32(m.buf[:0], m.xid)
	m.buf = binary.BigEndian.AppendUint32(m.buf, uint32(pipelineID)) //nolint:gosec // an identity column, never negative
	m.buf = binary.BigEndian.AppendUint32(m.buf, uint32(len(key)))   //nolint:gosec // a key is far below 4 GiB
	m.buf = append(m.buf, key...)
	m.buf = append(m.buf, sourceHash...)
	m.buf = append(m.buf, vectorHash...)
	mac := hmac.New(sha256.New, m.key)
	mac.Write(m.buf)
	var t Tag
	copy(t[:], mac.Sum(nil))
	return t
}

// Encode writes a mark.
func Encode(tags []Tag) []byte {
	b := make([]byte, 1, 1+TagSize*len(tags))
	b[0] = version
	for _, t := range tags {
		b = append(b, t[:]...)
	}
	return b
}

// Decode returns the tags of a mark. Anybody may write what looks like one: it is refused before it costs anything if
// it is larger than ours are.
func Decode(content []byte) (map[Tag]struct{}, error) {
	if len(content) == 0 || content[0] != version {
		return nil, errors.New("decode mark: not a mark of this version")
	}
	content = content[1:]
	if len(content) > MostTags*TagSize {
		return nil, errors.New("decode mark: more tags than a write-back has")
	}
	if len(content)%TagSize != 0 {
		return nil, errors.New("decode mark: cut off in mid-tag")
	}
	into := make(map[Tag]struct{}, len(content)/TagSize)
	for ; len(content) > 0; content = content[TagSize:] {
		into[Tag(content[:TagSize])] = struct{}{}
	}
	return into, nil
}

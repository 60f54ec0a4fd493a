// Package walmsg reads the logical messages of ours that come through the slot. Anybody may write others.
package walmsg

// Wait is the prefix of the logical message, in no transaction, by which somebody who waits asks the streamer to store
// its position; its content says nothing.
const Wait = "embedsidecar.wait"

// Ours tells of a logical message by its kind, its prefix and the length of its content whether it may be one of ours.
// Anybody may write others, as fast as he can.
func Ours(transactional bool, prefix []byte, content int) bool {
	switch string(prefix) {
	case Wait:
		return !transactional && content == 0
	case HintPrefix:
		return transactional && content == hintSize
	case Ask:
		return !transactional && content >= textAt && content <= textAt+LongestTexts
	}
	return false
}

// Package walmsg reads our logical messages from the slot. Any role can write others.
package walmsg

// Wait is the prefix of the nontransactional logical message with which a waiting session asks the streamer to store
// its position. Its content is irrelevant.
const Wait = "embedsidecar.wait"

// Ours reports, by kind, prefix and content length, whether a logical message may be one of ours. Any role can write
// others, at any rate.
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

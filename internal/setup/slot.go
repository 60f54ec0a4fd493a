package setup

import (
	"regexp"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/slot"
)

// slotName is what Postgres allows.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// renewal says why a slot must be made (anew), or "" if the one there is good. Making it anew means comparing every
// row. What only the stream may answer, as it is told what to do about gaps, is left to it.
func renewal(s *slot.State, server pglogrepl.IdentifySystemResult, adopt bool) (reason string, err error) {
	v := s.Judge(server)
	switch v.Condition {
	case slot.Good, slot.Moved, slot.Ahead, slot.OtherTimeline:
		return "", nil
	case slot.Absent:
		return v.Condition.String(), nil
	case slot.OtherServer:
		if !adopt {
			return "", v.Err()
		}
	default:
		if err := v.Err(); err != nil {
			return "", err
		}
	}
	if s.Active {
		return "", s.InUse()
	}
	return v.Condition.String(), nil
}

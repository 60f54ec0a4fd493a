package caughtup

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ParseLSN reads an LSN as Postgres does. (pglogrepl's own parser takes junk at the end and halves that are too long.)
func ParseLSN(s string) (pglogrepl.LSN, error) {
	high, low, ok := strings.Cut(s, "/")
	h, err := lsnHalf(high)
	l, err2 := lsnHalf(low)
	if !ok || errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("expected an LSN such as 0/16B3748, not %q", s)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

func lsnHalf(s string) (uint64, error) {
	if strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err == nil && (len(s) > 8 || n > math.MaxUint32) {
		return 0, strconv.ErrRange
	}
	return n, err
}

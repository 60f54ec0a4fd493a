package app

import (
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

// limitOf returns the limit of rows and tokens a second; nil: none.
func limitOf(c *config.Config) *limit.Limit {
	return limit.New(limit.Rates{Rows: float64(c.Limits.Rows), Tokens: float64(c.Limits.Tokens)},
		limit.Rates{Rows: float64(c.Limits.BackfillRows), Tokens: float64(c.Limits.BackfillTokens)}, time.Now())
}

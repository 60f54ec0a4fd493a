package pipeline

import "time"

// How pipelines are worked where nobody says otherwise: the configuration, the worker and the sidecar have it from
// here.
const (
	DefaultLoops        = 3 // batches of a pipeline in work at once
	DefaultBatchRows    = 256
	DefaultLease        = 30 * time.Second
	DefaultCacheBytes   = 16 << 20 // of vectors, for each model
	DefaultDrainTimeout = 20 * time.Second

	DefaultMaxAttempts  = 8
	DefaultFirstRetry   = time.Second
	DefaultLongestRetry = 5 * time.Minute
	DefaultHistory      = 24 * time.Hour
	DefaultHistoryRows  = 20_000_000
)

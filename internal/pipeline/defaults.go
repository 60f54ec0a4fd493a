package pipeline

import "time"

// The defaults of pipelines, for the configuration, the worker and the sidecar.
const (
	DefaultLoops        = 3 // concurrent batches of a pipeline
	DefaultBatchRows    = 256
	DefaultLease        = 30 * time.Second
	DefaultCacheBytes   = 16 << 20 // of vectors, per model
	DefaultDrainTimeout = 20 * time.Second

	DefaultMaxAttempts  = 8
	DefaultFirstRetry   = time.Second
	DefaultLongestRetry = 5 * time.Minute
	DefaultHistory      = 24 * time.Hour
	DefaultHistoryRows  = 20_000_000
)

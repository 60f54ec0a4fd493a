package registry

import (
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Properties are what a person reads of a plugin: names and values.
func (i *Info) Properties() [][]any {
	return [][]any{
		{"plugin", i.Name},
		{"version", i.Version},
		{"path", i.Path},
		{"pinned", i.Pinned},
		{"sha256", i.SHA256},
		{"model", i.Model},
		{"fingerprint", i.Fingerprint},
		{"dims", i.Dims},
		{"max tokens", unlimited(i.MaxTokens)},
		{"max batch", unlimited(i.MaxBatch)},
		{"max batch bytes", unlimited(i.MaxBatchBytes)},
		{"deterministic", i.Deterministic},
		{"sparse", i.Sparse},
		{"processes", i.Processes},
		{"memory limit", limitText(i.MemoryLimit)},
		{"call timeout", timeoutText(i.CallTimeout)},
		{"environment", strings.Join(i.Env, " ")},
	}
}

func unlimited(n int) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

func limitText(bytes int64) string {
	if bytes == 0 {
		return "none"
	}
	return wording.Size(bytes)
}

func timeoutText(seconds float64) string {
	if seconds == 0 {
		return "as usual"
	}
	return fmt.Sprintf("%gs", seconds)
}

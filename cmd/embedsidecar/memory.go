package main

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryShare is the share of the control group's memory that Go's memory limit gets. The rest is for plugins in the
	// same group, and for memory that Go does not count.
	memoryShare = 0.7
	// leastMemory is the minimum limit: with less, Go would only collect garbage.
	leastMemory = 40 << 20
)

// limitMemory sets Go's memory limit below the limit of the control group. It does not override GOMEMLIMIT.
func limitMemory(group memlimit.Provider, log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(group), memlimit.WithRatio(memoryShare),
		memlimit.WithMin(leastMemory))
	log.Debug("limit of memory", "bytes", limit, "error", err) // there is no limit without control groups
}

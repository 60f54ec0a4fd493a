package main

import (
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryShare is what of a control group's memory Go's collector keeps this program within. Plugins are in the group,
	// too, and so are stacks and buffers that Go does not count.
	memoryShare = 0.7
	// leastMemory is what it is given in any case: with less it would do nothing but collect.
	leastMemory = 40 << 20
)

// limitMemory has Go collect before the control group's limit is reached, in place of letting the heap double.
// GOMEMLIMIT, where it is set, is left as it is.
func limitMemory(group memlimit.Provider, log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithProvider(group), memlimit.WithRatio(memoryShare),
		memlimit.WithMin(leastMemory))
	log.Debug("limit of memory", "bytes", limit, "error", err) // without control groups there is none
}

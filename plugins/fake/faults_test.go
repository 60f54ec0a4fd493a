package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseFaults(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]faults{
		"":                              {},
		" ":                             {},
		"cost=2ms/call;cost=100us/text": {perCall: 2 * time.Millisecond, perText: 100 * time.Microsecond},
		"crash-on=A=B; hang-on= c ;wrong-count-every=7;leak=3MiB/call;exit-at-start": {
			on: map[string]string{"crash-on": "A=B", "hang-on": " c"}, every: map[string]uint64{"wrong-count-every": 7},
			leak: 3 << 20, does: map[string]bool{"exit-at-start": true},
		},
		"new-fingerprint;nan-on=x": {does: map[string]bool{"new-fingerprint": true}, on: map[string]string{"nan-on": "x"}},
	} {
		got, err := parseFaults(list)
		if err != nil {
			t.Errorf("parseFaults(%q): %v", list, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(faults{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("parseFaults(%q) (-want +got):\n%s", list, diff)
		}
	}
}

func TestParseFaults_IsStrict(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"crash":                           "unknown",
		"crash-on":                        "without a value",
		"crash-on=":                       "without a value",
		"crsh-on=x":                       "unknown",
		";":                               "unknown",
		"nan-on=x;":                       "unknown",
		"nan-on=x;nan-on=y":               "twice",
		"cost=1ms":                        "DURATION/call",
		"cost=1/call":                     "missing unit",
		"cost=-1ms/call":                  "negative",
		"cost=1ms/call;cost=2ms/call":     "twice",
		"wrong-count-every=0":             "from 1",
		"wrong-dims-every=-1":             "invalid syntax",
		"leak=1GiB/call":                  "MiB",
		"leak=0MiB/call":                  "MiB",
		"exit-at-start=yes":               "takes no value",
		"new-fingerprint;new-fingerprint": "twice",
	} {
		if _, err := parseFaults(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseFaults(%q) = %v, want an error about %q", list, err, want)
		}
	}
}

func TestNewEmbedder_IsStrict(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"EMBEDSIDECAR_PLUGIN_DIMS":            "0",
		"EMBEDSIDECAR_PLUGIN_MAX_BATCH":       "-1",
		"EMBEDSIDECAR_PLUGIN_MAX_BATCH_BYTES": "many",
		"EMBEDSIDECAR_PLUGIN_FAULTS":          "nonsense",
		"EMBEDSIDECAR_PLUGIN_CALLS":           "/no/such/folder/calls",
	} {
		_, err := newEmbedder(func(k string) string {
			if k == key {
				return value
			}
			return ""
		})
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v, want an error that names it", key, value, err)
		}
	}
}

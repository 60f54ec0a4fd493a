package host

import (
	"testing"
	"time"
)

// A plugin that needs minutes to load its model starts at all only if its user can allow that.
func TestP5_ASlowPluginMayStartAsSlowly(t *testing.T) {
	t.Parallel()
	for want, o := range map[time.Duration]Options{
		time.Minute:      {},
		61 * time.Second: {CallTimeout: CallTimeout(61 * time.Second)},
		5 * time.Second:  {CallTimeout: CallTimeout(time.Hour), StartTimeout: 5 * time.Second},
	} {
		o.Path = "/a"
		if got, err := o.withDefaults(); err != nil || got.StartTimeout != want {
			t.Errorf("a start may take %s, want %s (%v)", got.StartTimeout, want, err)
		}
	}
	o, _ := Options{Path: "/a", CallTimeout: CallTimeout(time.Second)}.withDefaults()
	if o.StartTimeout != time.Minute {
		t.Errorf("a start of a quick plugin may take %s", o.StartTimeout)
	}
}

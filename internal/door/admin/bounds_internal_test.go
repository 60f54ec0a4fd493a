package admin

import "testing"

// TestWatch_NobodyPushesOutOthers: a client that watches without end only uses up its own slots.
func TestWatch_NobodyPushesOutOthers(t *testing.T) {
	t.Parallel()
	watched := newHub()
	for range ownWatchers {
		if err := watched.join("a"); err != nil {
			t.Fatal(err)
		}
	}
	if watched.join("a") == nil {
		t.Error("one watches as often as he likes")
	}
	if err := watched.join("b"); err != nil {
		t.Errorf("another may not watch: %v", err)
	}
	watched.leave("a")
	if err := watched.join("a"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

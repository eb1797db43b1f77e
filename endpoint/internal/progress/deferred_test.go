package progress

import "testing"

// While a goroutine runs the work, others must not take it for done: they would rest, and nothing would run it again.
func TestRunningWorkIsLeft(t *testing.T) {
	var d Deferred
	done := false
	d.Add(func() bool {
		if d.IsEmpty() || !d.IsRecent() {
			t.Errorf("while the work runs, empty %v, recent %v", d.IsEmpty(), d.IsRecent())
		}
		return done
	})
	d.Run()
	if d.IsEmpty() {
		t.Error("work that is not done was dropped")
	}
	done = true
	d.Run()
	if !d.IsEmpty() || d.IsRecent() {
		t.Errorf("all work is done, but empty is %v, recent %v", d.IsEmpty(), d.IsRecent())
	}
}

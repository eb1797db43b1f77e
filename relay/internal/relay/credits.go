package relay

// credits counts receive buffers of both sides of a link. Each frame takes one of the other side's. See docs/hosts.md for why
// two sides that have both run out continue.
type credits struct {
	window    int // receive buffers that each side has for the other
	available int // frames that this side may send
	owed      int // buffers that this side has freed and not returned
}

func newCredits(window int) credits { return credits{window: window, available: window} }

// canSend reports whether a frame may be sent that does more than return credits: the last credit is for one that does.
func (c *credits) canSend() bool { return c.available > 1 }

// mustReturn reports whether a frame has to be sent that returns credits.
func (c *credits) mustReturn() bool { return c.available > 0 && c.owed >= c.window/2 }

// sent counts a frame, and returns the credits that it carries.
func (c *credits) sent() uint16 {
	owed := c.owed
	c.available--
	c.owed = 0
	return uint16(owed)
}

// received counts a frame that has arrived and whose buffer is free again. It reports false if no correct
// relay sends it: it was not covered by a credit, or returns too many.
func (c *credits) received(returned uint16) bool {
	c.available += int(returned)
	c.owed++
	return c.available <= c.window && c.owed <= c.window
}

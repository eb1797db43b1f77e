package relay

// Sizes of rooms.
const (
	smallRoom  = 64 << 10
	largeRoom  = 1 << 20
	largeRooms = 256 // at most, of a relay
)

// room counts the bytes of Sends and Writes that one relay sends to the other in a direction of a tunnel. Both
// relays begin with smallRoom bytes. The one that receives grants more when the endpoint has used some: it may have to
// hold all others.
type room struct {
	limit    uint64 // bytes that were granted so far
	received uint64
	size     uint64 // bytes that may be held
}

func newRoom() room { return room{limit: smallRoom, size: smallRoom} }

// receive counts bytes that have arrived. It reports false if they were not granted.
func (r *room) receive(n int) bool {
	r.received += uint64(n)
	return r.received <= r.limit
}

// isRoomy reports whether the other relay needs no grant.
func (r *room) isRoomy() bool { return r.limit-r.received > r.size/4*3 }

// grant returns the new limit if the endpoint has used so many bytes. It reports false if it is not worth a frame.
func (r *room) grant(used uint64) (limit uint64, ok bool) {
	if used+r.size-r.limit < r.size/4 {
		return 0, false
	}
	r.limit = used + r.size
	return r.limit, true
}

// enlarge makes a room large, because its tunnel carries large requests, if not too many are.
func (r *Relay) enlarge(o *room) {
	if o.size == smallRoom && r.enlarged < largeRooms {
		r.enlarged++
		o.size = largeRoom
	}
}

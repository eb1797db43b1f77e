package ndtest

// showRaceDetector makes up for what it cannot see: that the order of what the program and the
// provider do to memory comes about through another process. A call into each endpoint takes the
// locks that the provider, if it is written in Go, holds while it copies.
func (s *side) showRaceDetector() {
	for _, ep := range s.endpoints {
		_ = ep.Err()
	}
}

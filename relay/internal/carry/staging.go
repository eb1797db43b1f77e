package carry

// staging divides a buffer among requests, in the order of their arrival, and frees them in the same order. Both
// relays of a tunnel count alike: where a request lies depends on the requests before it only. The
// relay that sends a request frees it later than the one that has the buffer, so room at the first is room at the other.
type staging struct {
	size       uint64
	head, tail uint64   // bytes taken and freed so far, with those skipped
	taken      []uint64 // head after each request that is not freed
}

// stagingAlign is the alignment of a request in the buffer.
const stagingAlign = 64

// take takes n bytes, and returns their position. It reports false if there is no room.
func (s *staging) take(n uint64) (position uint64, ok bool) {
	need := (n + stagingAlign - 1) / stagingAlign * stagingAlign
	head := s.head
	if head%s.size+need > s.size {
		head += s.size - head%s.size // skip the rest: a request is contiguous
	}
	if need > s.size || head+need-s.tail > s.size {
		if len(s.taken) > 0 || need > s.size {
			return 0, false
		}
	}
	s.head = head + need
	s.taken = append(s.taken, s.head)
	return head % s.size, true
}

// free frees the oldest request.
func (s *staging) free() {
	s.tail = s.taken[0]
	s.taken = append(s.taken[:0], s.taken[1:]...)
}

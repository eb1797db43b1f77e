package main

import (
	"errors"
	"fmt"
	"time"
)

// tally counts what happened.
type tally struct {
	windows   int    // windows bound and invalidated
	closed    int    // the number of these that Close invalidated
	done      uint64 // transfers that succeeded
	inFlight  uint64 // transfers that failed after they had begun to change the memory
	refused   uint64 // transfers that failed before that
	cancelled uint64 // transfers posted after a failed one
	bytes     uint64 // of the transfers that succeeded
	late      int    // bytes that changed after an invalidation was complete
	wrong     int    // bytes that are not those of the transfers reported
}

func (t *tally) add(u tally) {
	t.windows += u.windows
	t.closed += u.closed
	t.done += u.done
	t.inFlight += u.inFlight
	t.refused += u.refused
	t.cancelled += u.cancelled
	t.bytes += u.bytes
	t.late += u.late
	t.wrong += u.wrong
}

// text returns the line that rank 0 prints at the end.
func (t *tally) text(elapsed time.Duration) string {
	s := fmt.Sprintf("revoke: in %.1f s %d windows bound and invalidated: %d transfers (%s) succeeded, "+
		"%d failed in flight, %d were refused, %d cancelled; %d bytes changed after an invalidation completed",
		elapsed.Seconds(), t.windows, t.done, bytesText(t.bytes), t.inFlight, t.refused, t.cancelled, t.late)
	if t.closed > 0 {
		s += fmt.Sprintf(" (%d windows were invalidated by closing them)", t.closed)
	}
	if t.wrong > 0 {
		s += fmt.Sprintf("; %d bytes are not those of the transfers reported", t.wrong)
	}
	return s
}

// err returns an error if the counts are wrong.
func (t *tally) err() error {
	switch {
	case t.late > 0:
		return fmt.Errorf("%d bytes changed after an invalidation had completed: this is a bug of softnd", t.late)
	case t.wrong > 0:
		return fmt.Errorf("%d bytes are not those of the transfers reported", t.wrong)
	case t.inFlight == 0:
		return errors.New("no transfer failed in flight: increase -seconds or -min")
	}
	return nil
}

// bytesText formats a number of bytes with a unit.
func bytesText(n uint64) string {
	value, units := float64(n), []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	if value == float64(uint64(value)) {
		return fmt.Sprintf("%.0f %s", value, units[0])
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}

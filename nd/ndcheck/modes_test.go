//go:build linux

package ndcheck_test

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

// Correct programs stay clean in a weak order.
func TestWeakOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		for name, p := range correct {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				t.Parallel()
				for _, f := range watch(t, p.cfg, 64, p.roles[0], p.roles[1], softnd.WithWeakOrder(seed)) {
					t.Error(f)
				}
			})
		}
	}
}

// Failures that a fault plan has made up have no reason in the program.
func TestFaults(t *testing.T) {
	for _, status := range []nd.Status{nd.IOTimeout, nd.AccessViolation, nd.RemoteError, nd.InvalidDeviceRequest, nd.BufferOverflow} {
		for _, op := range []string{"send", "write", "read", "bind", "invalidate", "receive"} {
			plan, err := faults.New(1, faults.Rule{Operations: []string{op}, Ranks: []int{1}, Nth: 1, Action: "fail", Status: status})
			if err != nil {
				continue // not every request can have every status
			}
			t.Run(fmt.Sprint(op, status), func(t *testing.T) {
				for _, f := range watch(t, nd.EndpointConfig{}, 64, func(s *side) {
					s.must(s.ep.Receive(1, s.sge(0, 64)))
					s.give(s.bind(64, 64, nd.AllowRead|nd.AllowWrite|nd.ThisEndpointOnly).Descriptor())
					_ = s.ep.Send(2, nd.SGL{}, 0)
					s.barrier()
				}, (*side).useAll, softnd.WithFaults(plan)) {
					t.Error(f)
				}
				if err := plan.Check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

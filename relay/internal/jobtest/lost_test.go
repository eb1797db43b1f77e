package jobtest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// roleLoses does what c/tests/hosts.c does as loses.
var roleLoses = proctest.Role("loses", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	q, err := j.Adapter().CreateCompletionQueue(s.Ctx, 64)
	if err != nil {
		return err
	}
	ep, err := j.Connect(s.Ctx, 1-j.Rank(), nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	if err := ep.Receive(1, nd.SGL{}); err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	s.Say("ready %d 0", j.Rank())
	var r [1]nd.Result
	if _, err := q.Wait(s.Ctx, r[:]); err != nil || r[0].Status != nd.Canceled {
		return fmt.Errorf("result %+v: %w", r[0], err)
	}
	s.Say("%v", ep.Err())
	return j.Close()
})

// When the relay of a host dies, the errors of connections name the rank of the other host, and do not advise to connect again.
func TestErrorsNameRanksOfOtherHosts(t *testing.T) {
	c := &cCluster{newCluster(t), cProgram(t)}
	for _, languages := range []string{"GC", "CG"} {
		t.Run(languages, func(t *testing.T) {
			all := c.atRoot(1, nil, c.acting(languages, "loses", roleLoses))
			ready(t, all)
			relays := c.processesAt(1, "ndrelay")
			if len(relays) != 1 {
				t.Fatalf("relays: %v", relays)
			}
			if err := syscall.Kill(relays[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for rank, want := range []string{"rank 1 on another host", "the relay of this host, which reached rank 0 on another host, has died or left"} {
				text := all[rank].Hear()
				if !strings.Contains(text, want) || !strings.Contains(text, "start the job again") || strings.Contains(text, "connect a") {
					t.Errorf("rank %d, want %q: %s", rank, want, text)
				}
			}
			for _, r := range all {
				r.Wait()
			}
			c.mustBeEmpty()
		})
	}
}

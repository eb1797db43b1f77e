// Package jobaccess gives tests of the system the inside of a job. Package softnd sets the functions when a program starts, so that
// tests in other packages need no exported names of it. Nothing but tests calls them.
package jobaccess

import (
	"context"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Inside is what a job consists of.
type Inside struct {
	Arena  *shm.Arena
	Member *shm.Member
	Group  *shm.Group

	Request func(rank int) nd.Connector // takes the oldest connection request of a rank; nil if there is none
	Kept    func(rank int) int          // counts the requests that a rank has made and, as far as this process knows, has not given up
}

// Of returns the inside of a *softnd.Job.
var Of func(job any) Inside

// Join makes this process a rank of an arena, as softnd.Init does, and returns a *softnd.Job, whose Close closes the arena. It returns the
// job also with an error. Without wait, it does not wait for other ranks. Each option is a softnd.Option.
var Join func(ctx context.Context, arena *shm.Arena, rank int, wait bool, options ...any) (job any, err error)

// Package traffic makes random requests of the model, for tests of many schedulers.
package traffic

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/softnd/softnd/nd"
)

// Objects allocates, registers, maps and frees until ctx ends. It calls allocated after each large allocation.
func Objects(ctx context.Context, a nd.Adapter, r *rand.Rand, allocated func()) {
	const flags = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite
	var held []func()
	for ctx.Err() == nil {
		switch r.IntN(5) {
		case 0:
			if mr, err := a.Allocate(ctx, 1+r.IntN(300_000), flags); err == nil {
				held = append(held, func() { mr.Close(ctx) })
				allocated()
			}
		case 1:
			if mr, err := a.Allocate(ctx, 1+r.IntN(3000), flags); err == nil {
				clear(mr.Bytes())
				held = append(held, func() { mr.Close(ctx) })
			}
		case 2:
			if mr, err := a.Register(ctx, make([]byte, 100), flags); err == nil {
				held = append(held, func() { mr.Close(ctx) })
			}
		case 3:
			if w, err := a.CreateMemoryWindow(ctx); err == nil {
				held = append(held, func() { w.Close(ctx) })
			}
		case 4:
			if cq, err := a.CreateCompletionQueue(ctx, 16); err == nil {
				if ep, err := a.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq}); err == nil {
					held = append(held, func() { ep.Close() })
				}
				held = append(held, func() { cq.Close() })
			}
		}
		for len(held) > 30 && ctx.Err() == nil {
			i := r.IntN(len(held))
			held[i]()
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		if r.IntN(4) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

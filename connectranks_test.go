package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

// ConnectRanks refuses numbers that are no peers before it waits for a rank.
func TestConnectRanksChecksAllPeersFirst(t *testing.T) {
	softndtest.Run(t, 2, func(ctx context.Context, job *softnd.Job) error {
		_, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for _, bad := range []int{2, -1, math.MinInt, math.MaxInt, job.Rank()} {
			_, err := job.ConnectRanks(ctx, []int{bad, 1 - job.Rank()}, cfg)
			var op *nd.OpError
			if !errors.As(err, &op) || op.Status != nd.InvalidParameter || op.Object != fmt.Sprintf("rank %d", bad) {
				return fmt.Errorf("rank %d: %w", bad, err)
			}
		}
		if none, err := job.ConnectRanks(ctx, nil, cfg); err != nil || len(none) > 0 {
			return fmt.Errorf("no peers: %v, %w", none, err)
		}
		if err := errors.Join(job.Barrier(ctx), job.Close()); err != nil {
			return err
		}
		if _, err := job.ConnectRanks(ctx, nil, cfg); !errors.Is(err, nd.InvalidHandle) {
			return fmt.Errorf("after Close: %w", err)
		}
		return nil
	})
}

// Ranks that connect with some of the others, each in an order of its own, do not wait for each other in a circle.
func TestConnectRanksInAnyOrder(t *testing.T) {
	const n, rounds = 4, 40
	seed := scale.Seed(t)
	var chosen [rounds][n][n]bool
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		for a := range n {
			for b := range a {
				isPair := random.IntN(4) > 0
				chosen[round][a][b], chosen[round][b][a] = isPair, isPair
			}
		}
	}
	softndtest.Run(t, n, func(ctx context.Context, job *softnd.Job) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		cq, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(seed, uint64(job.Rank()+1)))
		for round, pairs := range chosen {
			var peers []int
			for peer, isPeer := range pairs[job.Rank()] {
				if isPeer {
					peers = append(peers, peer)
				}
			}
			random.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
			endpoints, err := job.ConnectRanks(ctx, peers, cfg)
			if err != nil {
				return fmt.Errorf("round %d, with ranks %v: %w", round, peers, err)
			}
			for i, ep := range endpoints { // each endpoint is that of its rank
				if err := errors.Join(ep.Receive(0, nd.SGL{}), ep.Send(1, nd.SGL{}, nd.SilentSuccess)); err != nil {
					return fmt.Errorf("rank %d: %w", peers[i], err)
				}
			}
			var senders []int
			for range endpoints {
				r, err := nd.WaitOne(ctx, cq, nil)
				if err != nil {
					return err
				}
				senders = append(senders, int(r.EndpointContext))
			}
			if slices.Sort(senders); !slices.Equal(senders, slices.Sorted(slices.Values(peers))) {
				return fmt.Errorf("round %d: messages of ranks %v, want %v", round, senders, peers)
			}
			if err := job.Barrier(ctx); err != nil {
				return err
			}
			for _, ep := range endpoints {
				if err := ep.Close(); err != nil {
					return err
				}
			}
		}
		return job.Barrier(ctx)
	}, softnd.WithReceiveTimeout(softnd.NoLimit)) // a rank may be late
}

// A rank that is in the lists of both sides several times gets as many connections, in the order of the lists.
func TestConnectRanksTwice(t *testing.T) {
	lists := [][]int{{2, 1, 1, 2}, {0, 2, 0}, {0, 1, 0}}
	softndtest.Run(t, len(lists), func(ctx context.Context, job *softnd.Job) error {
		cq, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		peers := lists[job.Rank()]
		endpoints, err := job.ConnectRanks(ctx, peers, cfg)
		if err != nil {
			return err
		}
		nth := func(i int) (n uint32) { // how often peers[i] is in the list before i
			for _, peer := range peers[:i] {
				if peer == peers[i] {
					n++
				}
			}
			return n
		}
		for i, ep := range endpoints {
			if err := errors.Join(ep.Receive(uint64(i), nd.SGL{}), ep.SendImmediate(9, nd.SGL{}, nth(i), nd.SilentSuccess)); err != nil {
				return err
			}
		}
		for range endpoints {
			r, err := nd.WaitOne(ctx, cq, nil)
			if err != nil {
				return err
			}
			if i := int(r.RequestContext); int(r.EndpointContext) != peers[i] || uint32(r.InvalidatedToken) != nth(i) {
				return fmt.Errorf("connection %d of %v got message %d of rank %d", i, peers, r.InvalidatedToken, r.EndpointContext)
			}
		}
		return job.Barrier(ctx)
	}, softnd.WithReceiveTimeout(softnd.NoLimit))
}

// Ranks whose time ends while they wait for each other in a circle learn how to connect instead.
func TestConnectInACircleSaysHowToConnect(t *testing.T) {
	const n = 3
	softndtest.Run(t, n, func(ctx context.Context, job *softnd.Job) error {
		_, cfg, err := oneQueue(ctx, job)
		if err != nil {
			return err
		}
		right := (job.Rank() + 1) % n
		var op *nd.OpError
		for limit := 100 * time.Millisecond; ; limit *= 4 {
			brief, cancel := context.WithTimeout(ctx, limit)
			_, err = job.Connect(brief, right, cfg)
			cancel()
			if !errors.As(err, &op) || op.Op != "create endpoint" { // else the time was over before it began
				break
			}
		}
		want := fmt.Sprintf("rank %d must connect with rank %d, too; to connect with several ranks, call ConnectRanks in each, so that they do not wait in a circle", right, job.Rank())
		if !errors.Is(err, nd.Canceled) || !errors.As(err, &op) || op.Next != want {
			return fmt.Errorf("connect in a circle: %w, want %q", err, want)
		}
		return job.Barrier(ctx)
	})
}

// A Connect whose time ends names a rank that waits for this one meanwhile.
func TestConnectNamesTheRankThatWaits(t *testing.T) {
	for caller := range 2 { // rank 0 waits for a request of rank 1, and rank 1 makes one
		t.Run(fmt.Sprintf("rank %d", caller), func(t *testing.T) {
			softndtest.Run(t, 3, func(ctx context.Context, job *softnd.Job) error {
				_, cfg, err := oneQueue(ctx, job)
				if err != nil {
					return err
				}
				for said := ""; job.Rank() == caller && !strings.Contains(said, "rank 2 waits for this rank: "); {
					brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
					_, err := job.Connect(brief, 1-caller, cfg)
					cancel()
					if !errors.Is(err, nd.Canceled) || ctx.Err() != nil {
						return fmt.Errorf("without rank %d: %w, want one that names rank 2", 1-caller, err)
					}
					said = err.Error()
				}
				if peer := map[int]int{caller: 2, 2: caller}; job.Rank() == 2 || job.Rank() == caller {
					if _, err := job.Connect(ctx, peer[job.Rank()], cfg); err != nil {
						return err
					}
				}
				return job.Barrier(ctx)
			})
		})
	}
}

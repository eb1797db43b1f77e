package window

import (
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/nd"
)

// accepted reports whether a token gives an executor in another process, or the owner itself, access to the memory of r.
func accepted(owner, executor *side, to *FarEnd, r *Region, token nd.Token, address uint64) bool {
	for _, right := range []Rights{Read, Write} {
		if executor.guard.Check(remoteOperand(to, token, right, address), 1) == NoFault {
			return true
		}
		if owner.guard.Check(&Operand{Token: token, Rights: Local | right, Address: address}, 1) == NoFault {
			return true
		}
	}
	return false
}

// Jobs that make the same calls have other tokens, and those of one are refused in the other.
func TestTokensOfOtherArenasAreRefused(t *testing.T) {
	const arenas = 24
	type job struct {
		owner, executor *side
		to              *FarEnd
		region          *Region
		address         uint64
		tokens          []nd.Token
	}
	var jobs []job
	blocks := map[uint32]bool{}
	for range arenas {
		var j job
		j.owner, j.executor, j.to = pair(t)
		mem := j.owner.alloc(t, 4096)
		j.region = j.owner.region(t, mem, allRights)
		local, remote := j.region.Tokens()
		w := j.owner.window(t)
		j.tokens = []nd.Token{local, remote, bind(t, w, j.region, mem, Read|Write, 1, false)}
		j.address = w.Descriptor().Address
		for _, token := range j.tokens {
			if !accepted(j.owner, j.executor, j.to, j.region, token, j.address) {
				t.Fatal("an own token is refused")
			}
		}
		blocks[indexOf(local)/256] = true
		jobs = append(jobs, j)
	}
	for i, j := range jobs {
		own := map[nd.Token]bool{}
		for _, token := range j.tokens {
			own[token] = true
		}
		for k, other := range jobs {
			for _, token := range other.tokens {
				if i != k && !own[token] && accepted(j.owner, j.executor, j.to, j.region, token, j.address) {
					t.Errorf("arena %d accepts a token of arena %d", i, k)
				}
			}
		}
	}
	// Of 4,096 blocks, so few arenas seldom choose one twice.
	if len(blocks) < arenas/2 {
		t.Errorf("the tokens of %d arenas are of %d blocks", arenas, len(blocks))
	}
}

// No other token than those in use gives access: none with the index of one in use, and none at random.
func TestInventedTokensAreRefused(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 4096)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	local, remote := r.Tokens()
	valid := map[nd.Token]bool{local: true, remote: true, bind(t, w, r, mem, Read|Write, 1, false): true}
	address := w.Descriptor().Address
	try := func(token nd.Token) {
		if valid[token] != accepted(owner, executor, to, r, token, address) {
			t.Errorf("token %#x: valid %t", uint32(token), valid[token])
		}
	}
	for token := range valid {
		for tag := range nd.Token(1 << tagBits) {
			try(tag<<indexBits | nd.Token(indexOf(token)))
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300_000 {
		try(nd.Token(random.Uint32()))
	}
}

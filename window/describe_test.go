package window

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// TestGranted: what a message says is what the token grants to the one who
// used it.
func TestGranted(t *testing.T) {
	owner, executor, to := pair(t)
	mem, private := owner.alloc(t, 8192), make([]byte, 100)
	text := func(b []byte, rights string) string {
		return fmt.Sprintf("%d bytes at %#x %s", len(b), shm.AddressOf(b), rights)
	}
	was := func(b []byte) string {
		return fmt.Sprintf("nothing any more (%d bytes at %#x before)", len(b), shm.AddressOf(b))
	}
	check := func(what string, g *Guard, r *Ref, want string) {
		t.Helper()
		if got := g.Granted(r); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	mine := func(token nd.Token, kind Rights) *Ref { return &Ref{Token: token, Rights: kind | Read} }

	r := owner.region(t, mem, nd.AllowLocalWrite|nd.AllowRemoteRead)
	local, remote := r.Tokens()
	check("local", owner.guard, mine(local, Local), text(mem, "to read and write"))
	const localToken = "nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)"
	check("local as a remote one", owner.guard, mine(local, Remote), localToken)
	check("remote as a local one", owner.guard, mine(remote, Local), "nothing here, since it is a remote token (pass the local token of the region)")
	check("remote", owner.guard, mine(remote, Remote), text(mem, "to read"))
	check("remote, by the peer", executor.guard, farRef(to, remote, Write, 0), text(mem, "to read"))
	check("local, by the peer", executor.guard, farRef(to, local, Read, 0), localToken)
	ours, _ := executor.region(t, executor.alloc(t, 64), 0).Tokens()
	check("the peer's own local one", executor.guard, farRef(to, ours, Read, 0), localToken)
	check("a local one of the peer's", executor.guard, mine(local, Local), "nothing")
	stranger := *to
	stranger.Owner++
	check("of another adapter", executor.guard, farRef(&stranger, remote, Read, 0), "nothing")
	for _, token := range []nd.Token{0, remote ^ 1<<25, 12345} {
		check("no token", executor.guard, farRef(to, token, Read, 0), "nothing")
		check("no token", owner.guard, mine(token, Local), "nothing")
	}
	readOnly, _ := owner.region(t, private, 0).Tokens()
	check("private", owner.guard, mine(readOnly, Local), text(private, "to read"))

	w := owner.window(t)
	none := bind(t, w, r, mem[:10], 0, 7, false)
	check("a window that grants nothing", executor.guard, farRef(to, none, Read, 0), text(mem[:10], "without any right"))
	unbind(t, w)
	check("an invalidated one", executor.guard, farRef(to, none, Read, 0), was(mem[:10]))
	check("an invalidated one, by its owner", owner.guard, mine(none, Remote), "nothing")
	part := mem[100:300]
	b, err := w.Prepare(r, part, Write, 7, true)
	if err != nil {
		t.Fatal(err)
	}
	check("before the next bind", executor.guard, farRef(to, none, Read, 0), "nothing any more")
	check("not bound yet", executor.guard, farRef(to, w.Descriptor().Token, Read, 0), "nothing")
	if !b.Run() {
		t.Fatal("the window is bound")
	}
	check("after the next bind", executor.guard, farRef(to, none, Read, 0), "nothing")
	check("the next one", executor.guard, farRef(to, w.Descriptor().Token, Read, 0), text(part, "to write"))
	unbind(t, w)
	deregister(t, r)
	check("a deregistered region", executor.guard, farRef(to, remote, Read, 0), was(mem))
	check("a deregistered region, by its owner", owner.guard, mine(local, Local), "nothing")
}

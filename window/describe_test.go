package window

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The text says what the token allows to the process that used it.
func TestDescribeAccessMatchesToken(t *testing.T) {
	owner, executor, to := pair(t)
	mem, private := owner.alloc(t, 8192), make([]byte, 100)
	text := func(b []byte, rights string) string {
		return fmt.Sprintf("%d bytes at %#x %s", len(b), shm.AddressOf(b), rights)
	}
	was := func(b []byte) string {
		return fmt.Sprintf("nothing (invalidated; it covered %d bytes at %#x)", len(b), shm.AddressOf(b))
	}
	check := func(what string, g *Guard, r *Operand, want string) {
		t.Helper()
		if got := g.DescribeAccess(r); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	mine := func(token nd.Token, kind Rights) *Operand { return &Operand{Token: token, Rights: kind | Read} }

	r := owner.region(t, mem, nd.AllowLocalWrite|nd.AllowRemoteRead)
	local, remote := r.Tokens()
	check("local", owner.guard, mine(local, Local), text(mem, "to read and write"))
	const localToken = "nothing to a peer, since it is the local token of a region (pass the remote token of the peer's region or window)"
	check("local as a remote one", owner.guard, mine(local, Remote), localToken)
	check("remote as a local one", owner.guard, mine(remote, Local), "nothing here, since it is a remote token (pass the local token of the region)")
	check("remote", owner.guard, mine(remote, Remote), text(mem, "to read"))
	check("remote, by the peer", executor.guard, remoteOperand(to, remote, Write, 0), text(mem, "to read"))
	check("local, by the peer", executor.guard, remoteOperand(to, local, Read, 0), localToken)
	ours, _ := executor.region(t, executor.alloc(t, 64), 0).Tokens()
	check("the peer's own local one", executor.guard, remoteOperand(to, ours, Read, 0), localToken)
	check("a local one of the peer's", executor.guard, mine(local, Local), "nothing (it is a token of another adapter's memory: pass the one of a region of this adapter)")
	_, own := executor.region(t, executor.alloc(t, 64), nd.AllowRemoteRead).Tokens()
	check("an own remote one", executor.guard, remoteOperand(to, own, Read, 0), "nothing (it is a token of this side's own memory: pass the one that the peer has sent)")
	stranger := *to
	stranger.Adapter++
	check("of another adapter", executor.guard, remoteOperand(&stranger, remote, Read, 0), "nothing (it is a token of another adapter than the one at the other end)")
	const never = "nothing (no region or window has had this token: pass it unchanged, as its owner sent it)"
	for token, want := range map[nd.Token]string{0: "nothing (0 is no token: a window has none before its first bind)", remote ^ 1<<25: never, 12345: never} {
		check("no token", executor.guard, remoteOperand(to, token, Read, 0), want)
		check("no token", owner.guard, mine(token, Local), want)
	}
	readOnly, _ := owner.region(t, private, 0).Tokens()
	check("private", owner.guard, mine(readOnly, Local), text(private, "to read"))

	w := owner.window(t)
	none := bind(t, w, r, mem[:10], 0, 7, false)
	check("a window without access rights", executor.guard, remoteOperand(to, none, Read, 0), text(mem[:10], "without access rights"))
	invalidate(t, &w.Invalidatable)
	check("an invalidated one", executor.guard, remoteOperand(to, none, Read, 0), was(mem[:10]))
	check("an invalidated one, by its owner", owner.guard, mine(none, Remote), was(mem[:10]))
	part := mem[100:300]
	b, err := w.Prepare(r, part, Write, 7, true)
	if err != nil {
		t.Fatal(err)
	}
	const outOfDate = "nothing (out of date: its window was bound, or its region registered, again since: ask the owner for the present token)"
	check("before the next bind", executor.guard, remoteOperand(to, none, Read, 0), outOfDate)
	check("not bound yet", executor.guard, remoteOperand(to, w.Descriptor().Token, Read, 0), "nothing (its bind has not run yet)")
	if !b.Apply() {
		t.Fatal("the window is bound")
	}
	check("after the next bind", executor.guard, remoteOperand(to, none, Read, 0), outOfDate)
	check("the next one", executor.guard, remoteOperand(to, w.Descriptor().Token, Read, 0), text(part, "to write"))
	invalidate(t, &w.Invalidatable)
	deregister(t, r)
	check("a deregistered region", executor.guard, remoteOperand(to, remote, Read, 0), was(mem))
	check("a deregistered region, by its owner", owner.guard, mine(local, Local), was(mem))
}

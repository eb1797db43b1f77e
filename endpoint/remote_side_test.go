package endpoint

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A remote side is a process that executes orders. They come through its standard input, and the
// replies go through its standard output; the arena is descriptor 3.

type remoteCall struct {
	ID    int
	Order order
}

type remoteAnswer struct {
	ID    int
	Reply reply
}

var roleRemoteSide = proctest.Role("remoteSide", serveRemoteSide)

// serveRemoteSide is the main function of the remote side's process.
func serveRemoteSide(self *proctest.Self) error {
	file := self.File(0)
	arena, err := shm.Attach(self.Ctx, file)
	if err != nil {
		return err
	}
	file.Close()
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var options sideOptions
	if err := in.Decode(&options); err != nil {
		return err
	}
	s, err := openSide(self.Ctx, arena, options)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	answer := func(a remoteAnswer) error {
		mu.Lock()
		defer mu.Unlock()
		return out.Encode(a)
	}
	if err := answer(remoteAnswer{Reply: reply{N: int(s.member.ID())}}); err != nil {
		return err
	}
	for {
		var c remoteCall
		if err := in.Decode(&c); err != nil {
			return fmt.Errorf("the test hung up: %w", err)
		}
		if c.Order.Do == doLeave {
			if err := errors.Join(s.checkEdges(), s.leave()); err != nil {
				return err
			}
			return arena.Close()
		}
		go func() {
			if err := answer(remoteAnswer{c.ID, s.execute(c.Order)}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

// remoteSide is the test's handle of such a process.
type remoteSide struct {
	*proctest.Process
	t      testing.TB
	in     io.Closer
	member shm.MemberID
	read   chan struct{} // closed when all answers have been read

	mu      sync.Mutex
	enc     *gob.Encoder
	next    int
	pending map[int]chan reply
	over    bool
	ended   bool
}

// startRemoteSide starts a process with a side in the arena.
func startRemoteSide(t testing.TB, arena *shm.Arena, o sideOptions) *remoteSide {
	t.Helper()
	p := &remoteSide{t: t, read: make(chan struct{}), pending: make(map[int]chan reply)}
	cmd := proctest.Command(roleRemoteSide)
	cmd.ExtraFiles = []*os.File{arena.File()}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Process = proctest.Start(t, cmd)
	p.in, p.enc = in, gob.NewEncoder(in)
	hello := make(chan reply, 1)
	p.pending[0], p.next = hello, 1
	go p.listen(gob.NewDecoder(out))
	if err := p.enc.Encode(o); err != nil {
		t.Fatal(err)
	}
	r := <-hello
	if r.IsGone {
		p.Wait()
		t.Fatal("the remote side did not start")
	}
	p.member = shm.MemberID(r.N)
	return p
}

// listen distributes the replies until the process is gone.
func (p *remoteSide) listen(dec *gob.Decoder) {
	defer close(p.read)
	for {
		var a remoteAnswer
		err := dec.Decode(&a)
		p.mu.Lock()
		if err != nil {
			p.over = true
			for _, c := range p.pending {
				c <- reply{IsGone: true, Status: nd.Unsuccessful, Text: "the process is gone"}
			}
			clear(p.pending)
			p.mu.Unlock()
			return
		}
		c := p.pending[a.ID]
		delete(p.pending, a.ID)
		p.mu.Unlock()
		c <- a.Reply
	}
}

func (p *remoteSide) execute(o order) reply {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return reply{IsGone: true, Status: nd.Unsuccessful, Text: "the process is gone"}
	}
	c := make(chan reply, 1)
	id := p.next
	p.pending[id], p.next = c, id+1
	err := p.enc.Encode(remoteCall{id, o})
	p.mu.Unlock()
	if err != nil {
		return reply{IsGone: true, Status: nd.Unsuccessful, Text: err.Error()}
	}
	return <-c
}

// leave makes the process end normally, and fails the test if it does not.
func (p *remoteSide) leave() {
	p.t.Helper()
	if !p.ended {
		p.execute(order{Do: doLeave})
		p.finish()
		p.Wait()
	}
}

// kill ends the process as the kernel's out-of-memory killer would.
func (p *remoteSide) kill() {
	if !p.ended {
		_ = p.Cmd.Process.Kill() // it may have ended already
		p.finish()
		_ = p.End()
	}
}

// finish waits until all replies have been read.
func (p *remoteSide) finish() {
	p.ended = true
	p.in.Close()
	<-p.read
}

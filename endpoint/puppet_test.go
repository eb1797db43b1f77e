package endpoint

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A puppet is a process that executes orders. They come through its standard input, and the
// replies go through its standard output; the arena is descriptor 3.

type puppetCall struct {
	ID    int
	Order order
}

type puppetAnswer struct {
	ID    int
	Reply reply
}

// playPuppet is the main function of the puppet's process.
func playPuppet(ctx context.Context) error {
	file := os.NewFile(3, "arena")
	arena, err := shm.Attach(ctx, file)
	if err != nil {
		return err
	}
	file.Close()
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	var options sideOptions
	if err := in.Decode(&options); err != nil {
		return err
	}
	s, err := newSide(ctx, arena, options)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	answer := func(a puppetAnswer) error {
		mu.Lock()
		defer mu.Unlock()
		return out.Encode(a)
	}
	if err := answer(puppetAnswer{Reply: reply{N: int(s.member.ID())}}); err != nil {
		return err
	}
	for {
		var c puppetCall
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
			if err := answer(puppetAnswer{c.ID, s.obey(c.Order)}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

// puppet is the test's handle of such a process.
type puppet struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Closer
	errs bytes.Buffer

	member shm.MemberID
	read   chan struct{} // closed when all answers have been read

	mu      sync.Mutex
	enc     *gob.Encoder
	next    int
	pending map[int]chan reply
	over    bool
	ended   bool
}

func command(ctx context.Context, role string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+role,
		"GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0") // otherwise the race detector delays each exit by a second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// startPuppet starts a process with a side in the arena. It is killed when the test ends, if it
// still runs.
func startPuppet(t testing.TB, arena *shm.Arena, o sideOptions) *puppet {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*watchdog)
	p := &puppet{t: t, cmd: command(ctx, rolePuppet), read: make(chan struct{}), pending: make(map[int]chan reply)}
	p.cmd.ExtraFiles = []*os.File{arena.File()}
	p.cmd.Stderr = &p.errs
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		p.kill()
	})
	p.in, p.enc = in, gob.NewEncoder(in)
	hello := make(chan reply, 1)
	p.pending[0], p.next = hello, 1
	go p.listen(gob.NewDecoder(out))
	if err := p.enc.Encode(o); err != nil {
		t.Fatal(err)
	}
	r := <-hello
	if r.IsGone {
		p.kill()
		t.Fatalf("the puppet did not start: %s", &p.errs)
	}
	p.member = shm.MemberID(r.N)
	return p
}

// listen distributes the replies until the process is gone.
func (p *puppet) listen(dec *gob.Decoder) {
	defer close(p.read)
	for {
		var a puppetAnswer
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

func (p *puppet) obey(o order) reply {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return reply{IsGone: true, Status: nd.Unsuccessful, Text: "the process is gone"}
	}
	c := make(chan reply, 1)
	id := p.next
	p.pending[id], p.next = c, id+1
	err := p.enc.Encode(puppetCall{id, o})
	p.mu.Unlock()
	if err != nil {
		return reply{IsGone: true, Status: nd.Unsuccessful, Text: err.Error()}
	}
	return <-c
}

// leave makes the process end normally, and reports if it does not.
func (p *puppet) leave() {
	p.t.Helper()
	if p.ended {
		return
	}
	p.obey(order{Do: doLeave})
	if err := p.end(); err != nil {
		p.t.Errorf("puppet: %v\n%s", err, strings.TrimSpace(p.errs.String()))
	}
}

func (p *puppet) end() error {
	p.ended = true
	p.in.Close()
	<-p.read
	return p.cmd.Wait()
}

// kill ends the process as the kernel's out-of-memory killer would.
func (p *puppet) kill() {
	if !p.ended {
		_ = p.cmd.Process.Kill() // it may have ended already
		_ = p.end()
	}
}

// stop makes sure that the process executes nothing until resume or kill.
func (p *puppet) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	tasks := fmt.Sprintf("/proc/%d/task/", p.cmd.Process.Pid)
	eventually(p.t, "the puppet has stopped", func() bool {
		list, err := os.ReadDir(tasks)
		for _, task := range list {
			stat, _ := os.ReadFile(tasks + task.Name() + "/stat")
			_, state, _ := strings.Cut(string(stat), ") ") // a task that is gone has none
			if err == nil && state != "" && state[0] != 'T' {
				return false
			}
		}
		return err == nil
	})
}

func (p *puppet) resume() { p.signal(syscall.SIGCONT) }

func (p *puppet) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

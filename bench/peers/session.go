package peers

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// mark is a variable in the environment of all processes of a session. It identifies them, because launchers of MPI put
// their ranks into process groups and sessions of their own.
const mark = "NDBENCH_PEERS"

// session is the environment in which the programs of one peer run.
type session struct {
	o      Options
	cores  []int  // that the processes may use
	dir    string // for files; removed by close
	shared string // the same in memory; "" if there is none
	tag    string // value of mark
	guard  *guard // removes the directories, also if this process is killed
}

func open(o Options) (*session, error) {
	s := &session{o: o, tag: rand.Text()}
	var err error
	if s.cores, err = linux.CPUs(); err != nil {
		return nil, fmt.Errorf("peers: which cores may be used: %w", err)
	}
	if s.dir, err = filepath.Abs(filepath.Join(os.TempDir(), "ndbench-peers-"+s.tag)); err != nil {
		return nil, fmt.Errorf("peers: directory for files: %w", err)
	}
	s.shared = fmt.Sprintf("/dev/shm/ndbench-peers-%d-%s", os.Getpid(), s.tag)
	if s.guard, err = startGuard(s.variable(), s.dir, s.shared); err != nil {
		return nil, err
	}
	if err = os.Mkdir(s.dir, 0o700); err != nil {
		s.close()
		return nil, fmt.Errorf("peers: %w", err)
	}
	// Without this directory, Open MPI creates its files in /dev/shm itself, and leaves them there if it is killed.
	if os.Mkdir(s.shared, 0o700) != nil {
		s.shared = ""
	}
	return s, nil
}

// variable is how the environment of each process of the session has mark.
func (s *session) variable() string { return mark + "=" + s.tag }

func (s *session) close() {
	s.sweep()
	s.guard.end()
	os.RemoveAll(s.dir)
	if s.shared != "" {
		os.RemoveAll(s.shared)
	}
}

// limit returns a context that ends with the time-out of one program.
func (s *session) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	why := fmt.Errorf("did not finish within %v and was killed: %w", s.o.timeout, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, s.o.timeout, why)
}

// sweep kills the remaining processes of this session, wherever they are, and waits a little until they have exited.
func (s *session) sweep() {
	for range 100 {
		if !killMarked(s.variable()) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

//go:embed program/mpi.c
var mpiSource []byte

// compile compiles the MPI program.
func (s *session) compile(ctx context.Context, compiler string) error {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	source := filepath.Join(s.dir, "mpi.c")
	if err := os.WriteFile(source, mpiSource, 0o600); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	p, err := s.start(ctx, program{argv: []string{compiler, "-O2", "-o", s.mpiProgram(), source}})
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	if _, err := p.wait(); err != nil {
		return fmt.Errorf("peers: the MPI program does not compile: %w", err)
	}
	return nil
}

func (s *session) mpiProgram() string { return filepath.Join(s.dir, "mpi") }

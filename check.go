package softnd

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/softnd/softnd/internal/meet/checkjournal"
	"github.com/softnd/softnd/nd/ndcheck"
)

// checkerFromEnvironment returns the options of the checker, nil if the environment does not ask for it.
func checkerFromEnvironment() (*ndcheck.Options, error) {
	on, err := readSwitch(EnvCheck)
	if !on {
		return nil, err
	}
	o := &ndcheck.Options{}
	if list := os.Getenv(EnvCheckIgnore); list != "" {
		if o.Ignore, err = ndcheck.ParseRules(list); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvCheckIgnore, err)
		}
	}
	return o, nil
}

// inheritJournal lets the checker use the journal of the launcher's job, if there is one. lost reports whether the
// descriptor has no journal. Sudo and some other wrappers close the descriptors of the rank.
func (s *settings) inheritJournal() (lost bool, err error) {
	text, ok := os.LookupEnv(EnvCheckFD)
	if !ok || s.check == nil || s.check.Journal != nil {
		return false, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return false, fmt.Errorf("%s=%q: not a descriptor number", EnvCheckFD, text)
	}
	s.check.Journal, err = checkjournal.Open(fd)
	if errors.Is(err, checkjournal.ErrNone) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", EnvCheckFD, err)
	}
	return false, nil
}

// takeJournal lets the checker use the journal that the launcher has sent, and closes the file. Without a journal, nil, the
// checker knows this process only, and the launcher reports that it was not watched.
func (s *settings) takeJournal(file *os.File) (err error) {
	if file == nil {
		return nil
	}
	defer file.Close()
	s.check.Journal, err = checkjournal.Open(int(file.Fd()))
	return err
}

// noteCollective tells the checker, if there is one, how a collective call of this rank has ended.
func (j *Job) noteCollective(err error) {
	if j.checker == nil {
		return
	}
	j.checker.Synchronised() // a call that fails after its first barrier has waited for the others, too
	if err != nil {
		j.checker.InTrouble()
	}
}

// noteWait tells the checker, if there is one, that this rank waits until rank peer connects with it, too. The result ends the
// wait. Dial needs no such call: it waits for an Accept, which the checker sees by itself.
func (j *Job) noteWait(peer int) (done func()) {
	if j.checker != nil {
		if a, ok := j.addressOf(peer); ok {
			return j.checker.WaitFor(a)
		}
	}
	return func() {}
}

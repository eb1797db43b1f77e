package bootstrap

// TWIN c/src/meet/root_place.c.

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/meet/rendezvous"
)

// Variables with which users start the ranks of a job one by one, and on several hosts.
const (
	EnvRoot       = "SOFTND_ROOT"        // host:port at which rank 0 listens
	EnvSecret     = "SOFTND_SECRET"      // the same at all ranks
	EnvSecretFile = "SOFTND_SECRET_FILE" // a file with the secret

	EnvHostAddress = "SOFTND_HOST_ADDRESS" // address at which the other hosts reach this one
)

// Ended is the error of [Place.Leave] if another rank has ended the job, and no launcher is there to end this process.
type Ended = rendezvous.End

// Lengths of secrets, in bytes.
const (
	minSecret = 16
	maxSecret = 4096
)

// placeAtRoot meets the other ranks at the address of EnvRoot.
func placeAtRoot(ctx context.Context) (*Place, error) {
	rank, size, err := ownNumbers()
	if err != nil {
		return nil, err
	}
	secret, err := UserSecret()
	if err != nil {
		return nil, err
	}
	at, choice, err := Resolve(ctx, os.Getenv(EnvRoot))
	if err != nil {
		return nil, fmt.Errorf("%s=%q: %w", EnvRoot, os.Getenv(EnvRoot), err)
	}
	if choice != "" {
		fmt.Fprintf(os.Stderr, "softnd: rank %d of %d: %s=%s: %s\n", rank, size, EnvRoot, os.Getenv(EnvRoot), choice)
	}
	keepalive, err := relayclient.Keepalive()
	if err != nil {
		return nil, err
	}
	watch := new(ending)
	client, err := rendezvous.Join(ctx, rendezvous.Config{Root: at, Secret: secret, Rank: rank, Size: size, Keepalive: keepalive, Ended: watch.set,
		Logf: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "softnd: "+format+"\n", args...) }})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvRoot, err)
	}
	p, err := meet(ctx, client, fmt.Sprintf("of the job at %s", at), rank, size, secret)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", EnvRoot, err), client.HangUp())
	}
	if p.Hosts != nil {
		p.Hosts.known = client.LocalAddress()
	}
	p.leave, p.abort, p.ending = client.Leave, client.Abort, watch
	p.hangUp = func(error) error { return client.HangUp() }
	p.LauncherHidesReason = true
	return p, nil
}

// ownNumbers returns the rank and the size that the user has set, or that a launcher has set which does not help its ranks
// to meet.
func ownNumbers() (rank, size int, err error) {
	rankName, sizeName := EnvRank, EnvSize
	for _, e := range []environment{openMPI, slurm} {
		if os.Getenv(EnvRank) == "" && os.Getenv(EnvSize) == "" && os.Getenv(e.rank) != "" {
			rankName, sizeName = e.rank, e.size
			break
		}
	}
	r, rankErr := strconv.ParseUint(os.Getenv(rankName), 10, 31)
	s, sizeErr := strconv.ParseUint(os.Getenv(sizeName), 10, 31)
	if rankErr != nil || sizeErr != nil || r >= s {
		return 0, 0, fmt.Errorf("%s=%q with %s=%q: want a rank from 0 to size-1; %s is set, so set both for each rank",
			rankName, os.Getenv(rankName), sizeName, os.Getenv(sizeName), EnvRoot)
	}
	return int(r), int(s), nil
}

// UserSecret returns the secret that the user has given.
func UserSecret() ([]byte, error) {
	secret, from := []byte(os.Getenv(EnvSecret)), EnvSecret
	if file := os.Getenv(EnvSecretFile); file != "" {
		if len(secret) > 0 {
			return nil, fmt.Errorf("%s and %s are both set: set one of them", EnvSecret, EnvSecretFile)
		}
		var err error
		if secret, err = readPrivate(file); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvSecretFile, err)
		}
		from = EnvSecretFile
	}
	if len(secret) > maxSecret {
		return nil, fmt.Errorf("%s: the secret has more than %d bytes: use a shorter one", from, maxSecret)
	}
	if secret = bytes.TrimSpace(secret); len(secret) < minSecret {
		return nil, fmt.Errorf("%s: the secret has %d bytes: %s needs one of %d or more, the same at all ranks, in %s or in a file that %s names (such as one of: openssl rand -hex 32)",
			from, len(secret), EnvRoot, minSecret, EnvSecret, EnvSecretFile)
	}
	return secret, nil
}

// readPrivate reads a file that only this user and root can access.
func readPrivate(name string) ([]byte, error) {
	var f *os.File
	var err error
	linux.ReserveStandard(func() { f, err = os.Open(name) })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file: another process may replace the name
	if err != nil {
		return nil, err
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != os.Geteuid() && owner != 0 {
		return nil, fmt.Errorf("%s belongs to user %d and not to you: use a file of your own, with mode 600", name, owner)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o, so other users have access to the secret: run chmod 600 %[1]s, and then make a new secret", name, mode)
	}
	return io.ReadAll(io.LimitReader(f, maxSecret+1))
}

// relaySecret derives the secret of a job's relays from that of the user.
func relaySecret(secret []byte, job string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("relays of " + job))
	return h.Sum(nil)
}

// ending is the news that the job has ended because another rank has aborted it or died. It is safe for concurrent use.
type ending struct {
	mu     sync.Mutex
	end    *rendezvous.End
	handle func(code int, why string)
}

func (e *ending) set(end rendezvous.End) {
	e.mu.Lock()
	e.end = &end
	handle := e.handle
	e.mu.Unlock()
	if handle != nil {
		handle(max(end.Code, 1), end.Error())
	}
}

// OnEnd lets handle be called, in another goroutine, if the job ends because another rank has aborted it or died, and no
// launcher is there to end this process. It replaces the function of an earlier call. If the job has ended already, handle
// is called at once.
func (p *Place) OnEnd(handle func(code int, why string)) {
	if p.ending == nil {
		return
	}
	p.ending.mu.Lock()
	p.ending.handle = handle
	end := p.ending.end
	p.ending.mu.Unlock()
	if end != nil && handle != nil {
		handle(max(end.Code, 1), end.Error())
	}
}

package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
)

// TestReceiveTimeout: the option and the variable of the environment both reach a
// job's endpoints, and the option takes precedence.
func TestReceiveTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		variable string
		options  []Option
	}{
		"option":   {"", []Option{WithReceiveTimeout(0)}},
		"variable": {"0", nil},
		"both":     {"unlimited", []Option{WithReceiveTimeout(time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvReceiveTimeout, c.variable)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			job := fmt.Sprintf("softnd-test-%d-timeout", os.Getpid())
			ended := make(chan error, 2)
			for rank := range 2 {
				go func() { ended <- sendInVain(ctx, job, rank, c.options) }()
			}
			for range 2 {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// sendInVain is a rank of a job in which rank 0 sends what rank 1 does not receive.
func sendInVain(ctx context.Context, name string, rank int, options []Option) (err error) {
	job, err := Join(ctx, name, rank, 2, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	q, err := job.Adapter().CreateCompletionQueue(ctx, 8)
	if err != nil {
		return err
	}
	ep, err := job.Connect(ctx, 1-rank, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	if rank == 1 {
		<-ep.Done()
		return job.Barrier(ctx)
	}
	if err := ep.Send(1, nd.SGL{}, 0); err != nil {
		return err
	}
	var r [1]nd.Result
	if _, err := q.Wait(ctx, r[:]); err != nil || r[0].Status != nd.IOTimeout {
		return fmt.Errorf("the Send ended with %v, %v", r[0].Status, err)
	}
	return job.Barrier(ctx)
}

func TestReceiveTimeoutRefuses(t *testing.T) {
	for _, c := range []struct {
		variable string
		option   time.Duration
		want     string
	}{
		{"soon", 0, EnvReceiveTimeout + `: time-out "soon": want a duration such as 500ms or 10s, 0, or unlimited`},
		{"-1s", 0, EnvReceiveTimeout + ": receive time-out of -1s: want 0 or more"},
		{"", -time.Second, "softnd: join: receive time-out of -1s: want 0 or more"},
	} {
		t.Setenv(EnvReceiveTimeout, c.variable)
		_, err := Join(t.Context(), "softnd-test-refused", 0, 1, WithReceiveTimeout(c.option))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %v: %v, want %q", c.variable, c.option, err, c.want)
		}
	}
}

func TestWeakOrderReachesTheProvider(t *testing.T) {
	for _, c := range []struct {
		variable string
		options  []Option
		want     uint64
	}{
		{"7", nil, 7},
		{"0x10", nil, 16},
		{"7", []Option{WithWeakOrder(0)}, 0},
	} {
		t.Setenv(EnvWeakOrder, c.variable)
		if s, err := readSettings(c.options); err != nil || s.provider.WeakOrder == nil || *s.provider.WeakOrder != c.want {
			t.Errorf("%q: %v, %v, want seed %d", c.variable, s.provider.WeakOrder, err, c.want)
		}
	}
	t.Setenv(EnvWeakOrder, "")
	if s, err := readSettings(nil); err != nil || s.provider.WeakOrder != nil {
		t.Errorf("without a seed: %v, %v", s.provider.WeakOrder, err)
	}
	t.Setenv(EnvWeakOrder, "-1")
	if _, err := readSettings(nil); err == nil || err.Error() != EnvWeakOrder+`: seed "-1": want a number from 0 to 2^64-1` {
		t.Error(err)
	}
}

func TestSpinBudgetOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		variable string
		options  []Option
		want     int
	}{
		{"", nil, 0},
		{"0", nil, endpoint.NoSpin},
		{"7", nil, 7},
		{"2147483647", nil, 1<<31 - 1},
		{"7", []Option{WithSpinBudget(9)}, 9},
		{"7", []Option{WithSpinBudget(0)}, endpoint.NoSpin},
	} {
		t.Setenv(EnvSpinBudget, c.variable)
		if s, err := readSettings(c.options); err != nil || s.provider.SpinBudget != c.want {
			t.Errorf("%q: %v, %v, want %v", c.variable, s.provider.SpinBudget, err, c.want)
		}
	}
	for _, variable := range []string{"-1", "few", "2147483648"} {
		t.Setenv(EnvSpinBudget, variable)
		if _, err := readSettings(nil); err == nil || err.Error() != EnvSpinBudget+`: checks "`+variable+`": want a number from 0 to 2^31-1` {
			t.Error(err)
		}
	}
}

func TestIntegrityReachesTheProvider(t *testing.T) {
	for _, c := range []struct {
		variable string
		options  []Option
		want     bool
	}{
		{"", nil, false},
		{"0", nil, false},
		{"1", nil, true},
		{"0", []Option{WithIntegrity()}, true},
	} {
		t.Setenv(EnvIntegrity, c.variable)
		if s, err := readSettings(c.options); err != nil || s.provider.CheckPayloads != c.want {
			t.Errorf("%q: %v, %v, want %v", c.variable, s.provider.CheckPayloads, err, c.want)
		}
	}
	t.Setenv(EnvIntegrity, "yes")
	if _, err := readSettings(nil); err == nil || err.Error() != EnvIntegrity+`: invalid value "yes": want 0 or 1` {
		t.Error(err)
	}
}

func TestExecutorAndSpinBudgetReachTheProvider(t *testing.T) {
	t.Setenv(EnvExec, "target")
	for _, c := range []struct {
		options  []Option
		executor Executor
		spin     int
	}{
		{nil, ExecutorTarget, 0},
		{[]Option{WithExecutor(ExecutorAuto)}, ExecutorAuto, 0},
		{[]Option{WithExecutor(ExecutorTarget), WithSpinBudget(7)}, ExecutorTarget, 7},
		{[]Option{WithSpinBudget(0)}, ExecutorTarget, endpoint.NoSpin},
	} {
		s, err := readSettings(c.options)
		if err != nil || s.provider.Executor != c.executor || s.provider.SpinBudget != c.spin {
			t.Errorf("executor %v, spin budget %d, %v; want %v, %d", s.provider.Executor, s.provider.SpinBudget, err, c.executor, c.spin)
		}
	}
	for want, option := range map[string]Option{
		"executor 9: want ExecutorAuto or ExecutorTarget": WithExecutor(9),
		"spin budget of -1 checks: want 0 or more":        WithSpinBudget(-1),
	} {
		if _, err := Join(t.Context(), "softnd-test-refused", 0, 1, option); err == nil || err.Error() != "softnd: join: "+want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

package softnd_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

func TestNamesOfJob(t *testing.T) {
	ctx := proctest.Context(t)
	jobs := softndtest.New(t, 2)
	addr := netip.MustParseAddrPort("127.77.0.1:1000")
	withdraw, err := jobs[0].PublishName("server", addr)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := jobs[1].LookupName(ctx, "server"); err != nil || got != addr {
		t.Errorf("%v, %v", got, err)
	}
	want := func(err error, status nd.Status) {
		t.Helper()
		if !errors.Is(err, status) {
			t.Errorf("%v, want %v", err, status)
		}
	}
	_, err = jobs[1].PublishName("server", addr)
	want(err, nd.SharingViolation)
	_, err = jobs[1].PublishName("two words", addr)
	want(err, nd.InvalidParameter)
	_, err = jobs[1].LookupName(ctx, "two words")
	want(err, nd.InvalidParameter)
	withdraw()
	for i := 0; err == nil || errors.Is(err, nd.InvalidParameter); i++ {
		_, err = jobs[1].PublishName(fmt.Sprint("name-", i), addr)
	}
	want(err, nd.InsufficientResources)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = jobs[1].LookupName(ended, "server")
	want(err, nd.Canceled)
}

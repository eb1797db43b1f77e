//go:build linux

package ndcheck_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// provoked are the rows of the conformance suite that break rules. Some test how a provider reacts to a mistake.
// Others do not care about the data: several of their requests use the same bytes, or they close objects without
// taking every result. The timing may decide which of its rules a row breaks. Notes are left out.
var provoked = map[string]string{
	"C050": "N501 N507 N602",
	"C051": "N501 N507",
	"C052": "N203 N507",
	"C069": "N502",
	"C079": "N101",
	"C080": "N205",
	"C081": "N101",
	"C082": "N101",
	"C090": "N103",
	"C095": "N102",
	"C096": "N102",
	"C100": "N503",
	"C101": "N503",
	"C102": "N103",
	"C103": "N103",
	"C107": "N201 N202 N203",
	"C109": "N202",
	"C111": "N202 N203 N502",
	"C112": "N202 N204 N304",
	"C120": "N201 N402 N501 N602",
	"C121": "N201 N402 N501 N602",
	"C130": "N101",
	"C131": "N404",
	"C132": "N101",
	"C133": "N103",
	"C134": "N106",
	"C135": "N101 N107",
	"C136": "N101 N107",
	"C137": "N101 N107",
	"C138": "N404",
	"C139": "N404",
	"C140": "N104 N204",
	"C142": "N101",
	"C143": "N101",
	"C146": "N101",
	"C148": "N101",
	"C150": "N404",
	"C153": "N105",
	"C154": "N101",
	"C156": "N106",
	"C159": "N507",
	"C164": "N105",
	"C168": "N101 N507",
	"C169": "N101 N404",
	"C176": "N102",
	"C177": "N103",
	"C178": "N103",
	"C179": "N404",
	"C180": "N101",
	"C185": "N105",
	"C189": "N102",
	"C191": "N502",
	"C192": "N501 N502 N602",
	"C208": "N105",
	"C209": "N103",
	"C210": "N103",
	"C211": "N103",
	"C212": "N103",
	"C213": "N105",
	"C214": "N506",
	"C218": "N602",
	"C236": "N103",
	"C239": "N106",
	"C240": "N105",
	"C247": "N202",
}

type member struct {
	*ndcheck.Provider
	member *shm.Member
}

func (m member) Close() error { return errors.Join(m.Provider.Close(), m.member.Leave()) }

// watchedPair returns what opens watched providers of an arena, the sides 0 and 1, with a journal of their own.
func watchedPair(t *testing.T, arena *shm.Arena, report func(ndcheck.Finding)) func() (nd.Provider, error) {
	t.Helper()
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	var sides atomic.Int32
	return func() (nd.Provider, error) {
		m, err := arena.Join(shm.NoRank)
		if err != nil {
			return nil, err
		}
		p, err := endpoint.New(m, endpoint.Options{ReceiveTimeout: time.Second})
		if err != nil {
			return nil, errors.Join(err, m.Leave())
		}
		return member{ndcheck.Wrap(p, ndcheck.Options{Rank: int(sides.Add(1)) - 1, Journal: journal, Report: report}), m}, nil
	}
}

// The checker changes nothing that the conformance suite sees, and finds nothing in it but what it provokes.
func TestConformance(t *testing.T) {
	arena, err := shm.Create(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	var mu sync.Mutex
	found := make(map[string]ndcheck.Finding)
	for i := range ndtest.RowCount {
		clear(found)
		open := watchedPair(t, arena, func(f ndcheck.Finding) {
			mu.Lock()
			defer mu.Unlock()
			if f.Rule.Severity != ndcheck.Note {
				found[f.Rule.ID] = f
			}
		})
		ndtest.Run(t, ndtest.Config{Only: []string{ndtest.RowID(i + 1)}, ReceiveTimeout: time.Second, Open: open})
		mu.Lock()
		allowed := strings.Fields(provoked[ndtest.RowID(i+1)])
		for id, f := range found {
			if !slices.Contains(allowed, id) {
				t.Errorf("%s breaks %s, and may break %v: %v", ndtest.RowID(i+1), id, allowed, f)
			}
		}
		if len(allowed) > 0 && len(found) == 0 {
			t.Errorf("%s breaks no rule, want one of %v", ndtest.RowID(i+1), allowed)
		}
		mu.Unlock()
	}
}

var stressSeed = flag.Uint64("stress.seed", 0, "seed of TestStress; 0 = another one each time")

// TestStress makes random requests, all of which are legal, on several connections at once.
func TestStress(t *testing.T) {
	arena, err := shm.Create(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	seed := *stressSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	open := watchedPair(t, arena, func(f ndcheck.Finding) {
		if f.Rule.Severity != ndcheck.Note {
			t.Error(f)
		}
	})
	ndtest.Stress(t, ndtest.Config{Open: open, ReceiveTimeout: time.Second}, seed, 30)
}

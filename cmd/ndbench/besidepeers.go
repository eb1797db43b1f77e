package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/peers"
	"github.com/softnd/softnd/bench/report"
)

// besidePeers measures softnd, with ranks in each of the languages, and the chosen peers.
func besidePeers(ctx context.Context, chosen []peers.Peer, o peers.Options, l languageOptions, failed func(error)) ([]report.Result, error) {
	return peers.Run(ctx, chosen, o, func(ctx context.Context, f peers.Figure) ([]report.Result, error) {
		var all []report.Result
		for _, lang := range l.langs {
			if t, _ := testNamed(f.Test); t.Check(measure.Options{}, helped(lang)) != nil {
				continue // a figure that only ranks in Go have
			}
			found, err := ownRepeat(ctx, f, o, lang, l.perf)
			if err != nil {
				return all, fmt.Errorf("%s: %s: %w", providerOf(lang), f, err)
			}
			all = append(all, found...)
		}
		return all, nil
	}, failed)
}

// ownRepeat makes one repeat of a figure with softnd. It runs this program with one test, as a user would.
func ownRepeat(ctx context.Context, f peers.Figure, o peers.Options, lang, perf string) ([]report.Result, error) {
	pin := "--no-pin"
	if o.Pinned {
		pin = "--pin"
	}
	args := []string{f.Test, "--json", "-", pin, "--duration", o.Duration.String(), "--repeats", "1", "--lang", lang, "--perf", perf}
	if t, _ := testNamed(f.Test); t.Ranks == 0 {
		args = append(args, "--ranks", strconv.Itoa(f.Ranks))
	}
	if f.Size > 0 {
		args = append(args, "--size", strconv.Itoa(f.Size))
	}
	return runSelf(ctx, args)
}

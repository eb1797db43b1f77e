// Package scale says how much a test does. Environment variables make a test longer than it is by default, and repeat it.
package scale

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Names of variables. SOFTND_STRESS=1 makes tests take minutes instead of seconds; SOFTND_SEED repeats a test that makes random
// decisions; SOFTND_CONFORMANCE names a file for the results of the conformance suite.
const (
	EnvStress      = "SOFTND_STRESS"
	EnvSeed        = "SOFTND_SEED"
	EnvConformance = "SOFTND_CONFORMANCE"
)

// IsFull reports whether tests run at full scale.
func IsFull() bool { return os.Getenv(EnvStress) == "1" }

// WholeSuite reports whether the conformance suite runs in every combination: at full scale, or for the page of its results.
func WholeSuite() bool { return IsFull() || os.Getenv(EnvConformance) != "" }

// Of returns small, or full at full scale.
func Of[T any](small, full T) T {
	if IsFull() {
		return full
	}
	return small
}

// Seed returns and logs the seed of a test. It is a random number, or the value of SOFTND_SEED.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := set(t, EnvSeed, rand.Uint64(), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	t.Logf("%s=%d", EnvSeed, seed)
	return seed
}

// Duration returns how long a test runs: normal, at full scale full, or the value of the variable name.
func Duration(t testing.TB, name string, normal, full time.Duration) time.Duration {
	t.Helper()
	return set(t, name, Of(normal, full), time.ParseDuration)
}

// Number returns n, or the value of the variable name.
func Number(t testing.TB, name string, n int) int {
	t.Helper()
	return set(t, name, n, strconv.Atoi)
}

func set[T any](t testing.TB, name string, value T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return value
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

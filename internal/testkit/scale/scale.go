// Package scale says how much a test does. Environment variables make a test longer than it is by default, and repeat it.
package scale

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// EnvSeed is the variable that repeats a test that makes random decisions.
const EnvSeed = "SOFTND_SEED"

// Seed returns and logs the seed of a test. It is a random number, or the value of SOFTND_SEED.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := set(t, EnvSeed, rand.Uint64(), func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	t.Logf("%s=%d", EnvSeed, seed)
	return seed
}

// Duration returns how long a test runs: normal, with -short less, or what the variable name says.
func Duration(t testing.TB, name string, short, normal time.Duration) time.Duration {
	t.Helper()
	if testing.Short() {
		normal = short
	}
	return set(t, name, normal, time.ParseDuration)
}

// Number returns n, or what the variable name says.
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

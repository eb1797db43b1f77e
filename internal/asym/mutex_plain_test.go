//go:build !amd64 || race

package asym

import "testing"

// withAndWithoutBias runs f; here no lock has a bias.
func withAndWithoutBias(t *testing.T, f func(t *testing.T)) { f(t) }

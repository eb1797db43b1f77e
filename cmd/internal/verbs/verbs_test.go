package verbs

import (
	"strings"
	"testing"
)

// The places belong to the installation of ndrun, and that of the distribution's architecture comes first.
func TestPlaces(t *testing.T) {
	places := placesNear("/opt/x/bin/ndrun")
	if len(places) != 3 || !strings.HasPrefix(places[0], "/opt/x/lib/") || !strings.HasSuffix(places[0], "-linux-gnu/softnd/verbs") ||
		places[1] != "/opt/x/lib/softnd/verbs" || places[2] != "/opt/x/lib64/softnd/verbs" {
		t.Errorf("%q", places)
	}
}

package ndcompat

import (
	"context"
	"testing"

	"github.com/softnd/softnd/nd"
)

type plainAdapter struct{ nd.Adapter }

func (plainAdapter) Query() (nd.AdapterInfo, error) {
	return nd.AdapterInfo{AdapterID: 7}, nil
}

type commandingAdapter struct{ plainAdapter }

func (commandingAdapter) Control(_ context.Context, code uint32, in, out []byte) (int, error) {
	return copy(out, in) + int(code), nil
}

func TestQueryKnowsTwoVersions(t *testing.T) {
	for version, want := range map[uint32]nd.Status{0: nd.InvalidParameter, InfoVersion1: nd.Success, 2: nd.InvalidParameter, InfoVersion2: nd.Success, InfoVersion2 + 1: nd.InvalidParameter} {
		info, err := Query(plainAdapter{}, version)
		if nd.StatusOf(err) != want || err == nil && (info.InfoVersion != version || info.AdapterID != 7) {
			t.Errorf("version %#x: %+v, %v; want %v", version, info, err, want)
		}
	}
}

func TestControlReachesTheAdapter(t *testing.T) {
	if n, err := Control(t.Context(), commandingAdapter{}, 3, make([]byte, 4), make([]byte, 4)); n != 7 || err != nil {
		t.Errorf("a command returns %d, %v; want 7", n, err)
	}
	if _, err := Control(t.Context(), plainAdapter{}, 3, nil, nil); nd.StatusOf(err) != nd.NotSupported {
		t.Errorf("without commands: %v, want NotSupported", err)
	}
}

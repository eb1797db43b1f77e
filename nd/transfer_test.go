package nd

import (
	"errors"
	"reflect"
	"testing"
)

// postEndpoint is an endpoint that keeps the parameters of the last post.
type postEndpoint struct {
	Endpoint
	posted []any
}

func (e *postEndpoint) Send(reqCtx uint64, sge SGL, flags OpFlags) error {
	e.posted = []any{"send", reqCtx, sge, flags}
	return nil
}

func (e *postEndpoint) Write(reqCtx uint64, sge SGL, remoteAddress uint64, remoteToken Token, flags OpFlags) error {
	e.posted = []any{"write", reqCtx, sge, remoteAddress, remoteToken, flags}
	return nil
}

func (e *postEndpoint) Read(reqCtx uint64, sge SGL, remoteAddress uint64, remoteToken Token, flags OpFlags) error {
	e.posted = []any{"read", reqCtx, sge, remoteAddress, remoteToken, flags}
	return nil
}

func TestWriteToAndReadFromCheckTheLength(t *testing.T) {
	memory := WindowDescriptor{Address: 1000, Length: 10, Token: 7}
	for op, post := range map[string]func(Endpoint, uint64, SGL, WindowDescriptor, OpFlags) error{"write": WriteTo, "read": ReadFrom} {
		for _, tc := range []struct {
			lengths []int
			fits    bool
		}{
			{nil, true},
			{[]int{0}, true},
			{[]int{10}, true},
			{[]int{4, 0, 6}, true},
			{[]int{11}, false},
			{[]int{4, 7}, false},
		} {
			var ep postEndpoint
			var entries []SGE
			for _, n := range tc.lengths {
				entries = append(entries, SGE{Buffer: make([]byte, n), Token: 3})
			}
			sge := List(entries...)
			err := post(&ep, 5, sge, memory, SilentSuccess)
			switch {
			case tc.fits && (err != nil || !reflect.DeepEqual(ep.posted, []any{op, uint64(5), sge, uint64(1000), Token(7), SilentSuccess})):
				t.Errorf("%s of %v bytes: %v, posted %v", op, tc.lengths, err, ep.posted)
			case !tc.fits && (!errors.Is(err, AccessViolation) || ep.posted != nil):
				t.Errorf("%s of %v bytes: %v, posted %v, want AccessViolation", op, tc.lengths, err, ep.posted)
			}
		}
	}
	err := WriteTo(&postEndpoint{}, 0, One(SGE{Buffer: make([]byte, 11)}), memory, 0)
	const want = "nd: write on window descriptor: more bytes than the memory described (asked 11, have 10): access violation (sge): shorten the request"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestSendInlineAddsTheFlag(t *testing.T) {
	var ep postEndpoint
	message := []byte("hello")
	if err := SendInline(&ep, 4, message, SendAndSolicitEvent); err != nil {
		t.Fatal(err)
	}
	if want := []any{"send", uint64(4), One(SGE{Buffer: message}), SendAndSolicitEvent | Inline}; !reflect.DeepEqual(ep.posted, want) {
		t.Errorf("posted %v, want %v", ep.posted, want)
	}
}

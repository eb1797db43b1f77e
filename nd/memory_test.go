package nd

import (
	"bytes"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var (
	_ encoding.BinaryMarshaler   = WindowDescriptor{}
	_ encoding.BinaryAppender    = WindowDescriptor{}
	_ encoding.BinaryUnmarshaler = (*WindowDescriptor)(nil)
)

func TestWindowDescriptorLayout(t *testing.T) {
	d := WindowDescriptor{Address: 0x0102030405060708, Length: 0x1112131415161718, Token: 0x21222324}
	const want = "0102030405060708" + "1112131415161718" + "21222324"
	b, err := d.MarshalBinary()
	if err != nil || hex.EncodeToString(b) != want {
		t.Fatalf("MarshalBinary = %x, %v, want %s", b, err, want)
	}
	b, err = d.AppendBinary([]byte("head"))
	if err != nil || string(b[:4]) != "head" || hex.EncodeToString(b[4:]) != want {
		t.Fatalf("AppendBinary = %x, %v", b, err)
	}
	var got WindowDescriptor
	if err := got.UnmarshalBinary(b[4:]); err != nil || got != d {
		t.Fatalf("UnmarshalBinary = %+v, %v, want %+v", got, err, d)
	}
}

func TestWindowDescriptorWrongLength(t *testing.T) {
	before := WindowDescriptor{Address: 1, Length: 2, Token: 3}
	for _, n := range []int{0, 1, 19, 21, 40} {
		d := before
		err := d.UnmarshalBinary(make([]byte, n))
		if !errors.Is(err, InvalidBufferSize) {
			t.Errorf("%d bytes: error %v, want InvalidBufferSize", n, err)
		}
		if d != before {
			t.Errorf("%d bytes: changed to %+v although refused", n, d)
		}
	}
}

// Either the input is refused for its length alone, or encoding gives it back.
func FuzzWindowDescriptor(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(make([]byte, WindowDescriptorSize))
	f.Add(bytes.Repeat([]byte{0xff}, WindowDescriptorSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var d WindowDescriptor
		if err := d.UnmarshalBinary(in); err != nil {
			if len(in) == WindowDescriptorSize || !errors.Is(err, InvalidBufferSize) {
				t.Fatalf("%d bytes: %v", len(in), err)
			}
			return
		}
		out, err := d.MarshalBinary()
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("%x came back as %x, %v", in, out, err)
		}
	})
}

func TestTokenIsMasked(t *testing.T) {
	const tok = Token(0xDEADBE0F)
	d := WindowDescriptor{Address: 4096, Length: 1, Token: tok}
	for _, text := range []string{
		tok.String(), fmt.Sprint(tok), fmt.Sprintf("%v %s %#v", tok, tok, tok),
		fmt.Sprintf("%v", d), fmt.Sprintf("%+v", d), fmt.Sprintf("%#v", d),
		fmt.Sprintf("%+v", Result{InvalidatedToken: tok}), fmt.Sprintf("%+v", SGE{Token: tok}),
	} {
		low := strings.ToLower(text)
		if strings.Contains(low, "deadbe") || strings.Contains(low, "3735928335") {
			t.Errorf("%q gives the token away", text)
		}
		if !strings.Contains(low, "token(...0f)") {
			t.Errorf("%q does not show that it is a token", text)
		}
	}
	if got := Token(0).String(); got != "token(none)" {
		t.Errorf("the zero token prints as %q", got)
	}
}

// fixedRegion is a region with the given memory.
type fixedRegion struct {
	MemoryRegion
	mem []byte
}

func (r *fixedRegion) Bytes() []byte      { return r.mem }
func (r *fixedRegion) Address() uint64    { return 5000 }
func (r *fixedRegion) LocalToken() Token  { return 11 }
func (r *fixedRegion) RemoteToken() Token { return 22 }

func TestSGEOf(t *testing.T) {
	r := &fixedRegion{mem: append(make([]byte, 0, 32), "0123456789"...)} // with room behind the length
	for _, tc := range []struct{ offset, n int }{{0, 10}, {0, 0}, {10, 0}, {3, 4}} {
		got := SGEOf(r, tc.offset, tc.n)
		if want := "0123456789"[tc.offset:][:tc.n]; string(got.Buffer) != want || cap(got.Buffer) != tc.n || got.Token != 11 {
			t.Errorf("SGEOf(%d, %d) = %q with capacity %d and %v, want %q", tc.offset, tc.n, got.Buffer, cap(got.Buffer), got.Token, want)
		}
	}
	const top = int(^uint(0) >> 1)
	for _, tc := range []struct {
		mem       []byte
		offset, n int
	}{{r.mem, 0, 11}, {r.mem, 11, 0}, {r.mem, -1, 1}, {r.mem, 0, -1}, {r.mem, 5, 6}, {r.mem, top, top}, {nil, 0, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SGEOf(%d, %d) of %d bytes does not panic", tc.offset, tc.n, len(tc.mem))
				}
			}()
			SGEOf(&fixedRegion{mem: tc.mem}, tc.offset, tc.n)
		}()
	}
}

func TestDescriptorOf(t *testing.T) {
	if got, want := DescriptorOf(&fixedRegion{mem: make([]byte, 30)}), (WindowDescriptor{Address: 5000, Length: 30, Token: 22}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWindowDescriptorSlice(t *testing.T) {
	d := WindowDescriptor{Address: 5000, Length: 30, Token: 22}
	for _, tc := range []struct{ offset, n int }{{0, 30}, {30, 0}, {0, 0}, {7, 8}} {
		got, err := d.Slice(tc.offset, tc.n)
		if want := (WindowDescriptor{Address: 5000 + uint64(tc.offset), Length: uint64(tc.n), Token: 22}); err != nil || got != want {
			t.Errorf("Slice(%d, %d) = %+v, %v, want %+v", tc.offset, tc.n, got, err, want)
		}
	}
	const top = int(^uint(0) >> 1)
	for _, tc := range []struct{ offset, n int }{{0, 31}, {31, 0}, {-1, 1}, {1, -1}, {20, 11}, {top, top}, {1, top}} {
		if got, err := d.Slice(tc.offset, tc.n); !errors.Is(err, AccessViolation) || got != (WindowDescriptor{}) {
			t.Errorf("Slice(%d, %d) = %+v, %v, want AccessViolation", tc.offset, tc.n, got, err)
		}
	}
	_, err := d.Slice(20, 11)
	const want = "nd: slice on window descriptor: not within the memory described (asked 11 bytes at offset 20, have 30): access violation: check offset and length"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

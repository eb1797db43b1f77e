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

package nd

import (
	"errors"
	"strings"
	"testing"
)

// The numbers as NetworkDirect publishes them, written out a second time on purpose.
func TestStatusNumbers(t *testing.T) {
	for got, want := range map[Status]uint32{
		Success:                  0x00000000,
		Timeout:                  0x00000102,
		Pending:                  0x00000103,
		BufferOverflow:           0x80000005,
		DeviceBusy:               0x80000011,
		NoMoreEntries:            0x8000001A,
		Unsuccessful:             0xC0000001,
		AccessViolation:          0xC0000005,
		InvalidHandle:            0xC0000008,
		InvalidParameter:         0xC000000D,
		InvalidDeviceRequest:     0xC0000010,
		NoMemory:                 0xC0000017,
		BufferTooSmall:           0xC0000023,
		InvalidParameterMix:      0xC0000030,
		DataOverrun:              0xC000003C,
		DataError:                0xC000003E,
		DataChecksumError:        0xC0000470,
		SharingViolation:         0xC0000043,
		InsufficientResources:    0xC000009A,
		DeviceNotReady:           0xC00000A3,
		IOTimeout:                0xC00000B5,
		NotSupported:             0xC00000BB,
		BadNetworkName:           0xC00000CC,
		InternalError:            0xC00000E5,
		Canceled:                 0xC0000120,
		RemoteError:              0xC000013D,
		InvalidAddress:           0xC0000141,
		InvalidDeviceState:       0xC0000184,
		InvalidBufferSize:        0xC0000206,
		TooManyAddresses:         0xC0000209,
		AddressAlreadyExists:     0xC000020A,
		ConnectionDisconnected:   0xC000020C,
		ConnectionRefused:        0xC0000236,
		AddressAlreadyAssociated: 0xC0000238,
		ConnectionInvalid:        0xC000023A,
		ConnectionActive:         0xC000023B,
		NetworkUnreachable:       0xC000023C,
		HostUnreachable:          0xC000023D,
		ConnectionAborted:        0xC0000241,
		DeviceRemoved:            0xC00002B6,
		ImplementationLimit:      0xC000042B,
	} {
		if uint32(got) != want {
			t.Errorf("%v is %#x, want %#x", got, uint32(got), want)
		}
	}
	if InvalidationError != Status(0xC0000010) || LocalLength != Status(0xC000003C) {
		t.Error("a version 1 name has moved away from its number")
	}
}

func TestStatusClasses(t *testing.T) {
	for _, s := range []Status{Success, Timeout, Pending} {
		if s.Failed() {
			t.Errorf("%v counts as a failure", s)
		}
	}
	for s := range statusTexts {
		if s != Success && s != Timeout && s != Pending && !s.Failed() {
			t.Errorf("%v does not count as a failure", s)
		}
	}
	for _, s := range []Status{BufferOverflow, DeviceBusy, NoMoreEntries} {
		if !s.Failed() || s>>30 != 2 {
			t.Errorf("%v is not a warning that counts as a failure", s)
		}
	}
}

func TestStatusAsError(t *testing.T) {
	if err := Success.Err(); err != nil {
		t.Errorf("Success.Err() = %v, want nil", err)
	}
	if err := Pending.Err(); !errors.Is(err, Pending) {
		t.Errorf("Pending.Err() = %v", err)
	}
	if err := Canceled.Err(); !errors.Is(err, Canceled) || errors.Is(err, AccessViolation) {
		t.Errorf("Canceled.Err() = %v", err)
	}
	words := map[string]Status{}
	for s := range statusTexts {
		text := s.Error()
		if !strings.HasPrefix(text, "nd: ") || len(text) == len("nd: ") {
			t.Errorf("%v reads %q", s, text)
		}
		if other, taken := words[text]; taken {
			t.Errorf("%v and %v both read %q", s, other, text)
		}
		words[text] = s
	}
}

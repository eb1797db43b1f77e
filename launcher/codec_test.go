package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"
)

// fill sets each encoded field in v to a value of its own.
func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), next)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), next)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("%d \xff\x00", *next)) // arguments need not be text
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uintptr, reflect.Uint32:
		v.SetUint(uint64(*next))
	default:
		v.SetInt(-int64(*next) << 20)
	}
}

// messages returns one message of each type with all fields set, and an empty one to decode into.
func messages() map[string][2]message {
	var o order
	var e event
	next := 0
	fill(reflect.ValueOf(&o).Elem(), &next)
	fill(reflect.ValueOf(&e).Elem(), &next)
	o.Kind = orderStart // the only one with a job
	return map[string][2]message{"order": {&o, new(order)}, "event": {&e, new(event)}}
}

func written(m message) []byte {
	var s sender
	s.put(m)
	return s.bytes
}

func TestMessagesRoundTrip(t *testing.T) {
	for name, m := range messages() {
		b := written(m[0])
		from := bufio.NewReader(bytes.NewReader(append(b, b...)))
		for range 2 {
			if !get(from, m[1]) {
				t.Fatalf("%s: not read", name)
			}
			if !reflect.DeepEqual(m[0], m[1]) {
				t.Errorf("%s: %+v\nhas become %+v", name, m[0], m[1])
			}
		}
		if _, err := from.ReadByte(); err != io.EOF {
			t.Errorf("%s: %v behind it", name, err)
		}
	}
}

// A truncated message, as from a process that is killed, is not delivered.
func TestTruncatedMessage(t *testing.T) {
	for name, m := range messages() {
		b := written(m[0])
		for n := range b {
			if get(bufio.NewReader(bytes.NewReader(b[:n])), m[1]) {
				t.Errorf("%s: read from %d of %d bytes", name, n, len(b))
			}
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(written(m[0]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []message{new(order), new(event)} {
			c := codec{b: b}
			if m.fields(&c); c.bad {
				continue
			}
			// A decoded message can be encoded and decoded again.
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
			if !get(bufio.NewReader(bytes.NewReader(written(m))), again) || !reflect.DeepEqual(m, again) {
				t.Errorf("%+v has become %+v", m, again)
			}
		}
	})
}

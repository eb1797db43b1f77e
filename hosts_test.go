package softnd_test

import (
	"reflect"
	"testing"

	"github.com/softnd/softnd"
)

func TestHostsOfOneHost(t *testing.T) {
	j, err := softnd.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if got, want := j.Hosts(), []softnd.Host{{Ranks: []int{0}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("hosts: %v, want %v", got, want)
	}
}

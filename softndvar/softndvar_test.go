package softndvar_test

import (
	"crypto/rand"
	"encoding/json"
	"expvar"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
	"github.com/softnd/softnd/softndvar"
)

func TestPublish(t *testing.T) {
	job := softndtest.New(t, 1, softnd.WithStats())[0]
	name := "softndvar-" + rand.Text() // a variable cannot be removed
	if err := softndvar.Publish(name, job); err != nil {
		t.Fatal(err)
	}
	queue, err := job.Adapter().CreateCompletionQueue(t.Context(), 16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Adapter().CreateEndpoint(t.Context(), nd.EndpointConfig{ReceiveCQ: queue, InitiatorCQ: queue}); err != nil {
		t.Fatal(err)
	}
	read := func() (s softnd.Stats) {
		t.Helper()
		if err := json.Unmarshal([]byte(expvar.Get(name).String()), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := read(); s.Size != 1 || len(s.Endpoints) != 1 || s.Endpoints[0].Operations == nil || len(s.CompletionQueues) != 1 || s.CompletionQueues[0].Depth < 16 {
		t.Errorf("the variable contains %+v", s)
	}
	if err := softndvar.Publish(name, job); err == nil {
		t.Error("a name was published twice")
	}
	if err := job.Close(); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.ClosedEndpoints != 1 || len(s.Endpoints) != 0 {
		t.Errorf("after Close the variable contains %+v", s)
	}
}

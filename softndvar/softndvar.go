// Package softndvar publishes the counters of a rank as a variable of package expvar. If the program
// serves HTTP with [net/http.DefaultServeMux], the counters are at /debug/vars:
//
//	job := softnd.Must(softnd.Init(ctx))
//	softnd.Check(softndvar.Publish("softnd", job))
//	go http.ListenAndServe("localhost:6060", nil)
//
// Package expvar imports net/http. Programs that do not import softndvar are built without net/http.
package softndvar

import (
	"expvar"
	"fmt"
	"sync"

	"github.com/softnd/softnd"
)

// publishing is held while a name is checked and published: expvar ends the process if a name is taken.
var publishing sync.Mutex

// Publish publishes the counters of job as the expvar variable name. Each read of the variable calls
// [softnd.Job.Stats], also after the job is closed. The variable cannot be removed.
//
// Publish fails if a variable of this name exists.
func Publish(name string, job *softnd.Job) error {
	publishing.Lock()
	defer publishing.Unlock()
	if expvar.Get(name) != nil {
		return fmt.Errorf("publish counters: the variable %q exists: pass another name", name)
	}
	expvar.Publish(name, expvar.Func(func() any { return job.Stats() }))
	return nil
}

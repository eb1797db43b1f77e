// Package softndvar publishes the counters of a rank as a variable of package expvar. A program that
// serves HTTP with [net/http.DefaultServeMux] then shows them at /debug/vars:
//
//	job := softnd.Must(softnd.Init(ctx))
//	softnd.Check(softndvar.Publish("softnd", job))
//	go http.ListenAndServe("localhost:6060", nil)
//
// It is a package of its own because expvar imports net/http, which the other packages of softnd do not
// need.
package softndvar

import (
	"expvar"
	"fmt"
	"sync"

	"github.com/softnd/softnd"
)

// publishing is held while a name is checked and published: expvar ends the process if a name is taken.
var publishing sync.Mutex

// Publish publishes the counters of job under a name. Each read of the variable calls [softnd.Job.Stats],
// also after the job is closed. Variables of package expvar cannot be removed.
//
// Publish fails if the name is in use.
func Publish(name string, job *softnd.Job) error {
	publishing.Lock()
	defer publishing.Unlock()
	if expvar.Get(name) != nil {
		return fmt.Errorf("publish counters: the variable %q exists: pass another name", name)
	}
	expvar.Publish(name, expvar.Func(func() any { return job.Stats() }))
	return nil
}

package endpoint

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/softnd/softnd/nd"
)

// The kinds of objects that an adapter owns, in the order in which its Close closes them. No connection begins once it has closed
// listeners and connectors, no request runs once it has closed endpoints, and no window needs a region. Endpoints add results when they
// are closed, so their queues come last.
const (
	kindListener = iota
	kindConnector
	kindSharedAddress
	kindEndpoint
	kindWindow
	kindRegion
	kindMapping
	kindQueue // completion queues and shared receive queues
	kinds
)

// ownedObjects are the open objects of an adapter.
type ownedObjects struct {
	mu     sync.Mutex
	closed bool
	open   [kinds]map[any]struct{}
}

// own adds an object that was just created. It fails if the adapter is closed.
func (a *adapter) own(op string, kind int, object any) error {
	o := &a.owned
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return a.opError(op, nd.InvalidHandle, "the adapter is closed", "open it again")
	}
	if o.open[kind] == nil {
		o.open[kind] = make(map[any]struct{})
	}
	o.open[kind][object] = struct{}{}
	return nil
}

// adopt is own for the call that has created object. If the adapter is closed, it closes object.
func adopt[T any](a *adapter, op string, kind int, object T) (created T, err error) {
	if err = a.own(op, kind, object); err != nil {
		_ = closeOwned(context.Background(), object)
		return created, err
	}
	return object, nil
}

func closeOwned(ctx context.Context, object any) error {
	if o, ok := object.(io.Closer); ok {
		return o.Close()
	}
	return object.(interface{ Close(context.Context) error }).Close(ctx)
}

// disown removes an object that is closed.
func (a *adapter) disown(kind int, object any) {
	a.owned.mu.Lock()
	defer a.owned.mu.Unlock()
	delete(a.owned.open[kind], object)
}

// Close closes the handle and its objects. In a goroutine that panics it is postponed, see [nd.Endpoint.Close].
func (a *adapter) Close(ctx context.Context) error {
	if err := a.provider.postponed("adapter", func() error { return a.Close(context.Background()) }); err != nil {
		return err
	}
	a.closed.Store(true)
	var errs []error
	for kind := range kinds {
		a.owned.mu.Lock()
		a.owned.closed = true
		var open []any
		for object := range a.owned.open[kind] {
			open = append(open, object)
		}
		a.owned.mu.Unlock()
		for _, object := range open {
			errs = append(errs, closeOwned(ctx, object))
		}
	}
	return errors.Join(errs...)
}

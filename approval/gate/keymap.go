package gate

import (
	"maps"
	"slices"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// keyMap is a map by key. It is safe for concurrent use, and its zero value is empty.
type keyMap[V any] struct {
	mu sync.Mutex
	m  map[approval.Key]V
}

func (x *keyMap[V]) get(k approval.Key) (v V, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok = x.m[k]
	return v, ok
}

func (x *keyMap[V]) has(k approval.Key) bool {
	_, ok := x.get(k)
	return ok
}

func (x *keyMap[V]) set(k approval.Key, v V) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.m == nil {
		x.m = map[approval.Key]V{}
	}
	x.m[k] = v
}

// take removes a key and returns its value.
func (x *keyMap[V]) take(k approval.Key) (v V, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok = x.m[k]
	delete(x.m, k)
	return v, ok
}

func (x *keyMap[V]) remove(k approval.Key) { _, _ = x.take(k) }

func (x *keyMap[V]) keys() []approval.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.m))
}

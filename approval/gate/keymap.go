package gate

import (
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// keyMap is a map by key. It is safe for concurrent use, and its zero value is empty.
type keyMap[V any] struct{ m sync.Map }

func (x *keyMap[V]) get(k approval.Key) (v V, ok bool) {
	found, ok := x.m.Load(k)
	if ok {
		v = found.(V)
	}
	return v, ok
}

func (x *keyMap[V]) has(k approval.Key) bool {
	_, ok := x.m.Load(k)
	return ok
}

func (x *keyMap[V]) set(k approval.Key, v V) { x.m.Store(k, v) }

// take removes a key and returns its value.
func (x *keyMap[V]) take(k approval.Key) (v V, ok bool) {
	found, ok := x.m.LoadAndDelete(k)
	if ok {
		v = found.(V)
	}
	return v, ok
}

func (x *keyMap[V]) remove(k approval.Key) { x.m.Delete(k) }

func (x *keyMap[V]) keys() (keys []approval.Key) {
	for k := range x.m.Range {
		keys = append(keys, k.(approval.Key))
	}
	return keys
}

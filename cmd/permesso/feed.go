package main

import (
	"context"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
)

// feed publishes audit entries to followers once they are durable. Without
// followers it costs one buffered entry each.
type feed struct {
	house *house
	log   *audit.Log
	knock chan struct{}

	mu        sync.Mutex
	last      []approval.Entry // newest entries, in order
	heard     int64            // sequence number of the newest entry
	durable   int64            // sequence number of the newest durable entry
	moved     chan struct{}
	followers int
}

// kept is how many entries are buffered for followers that are behind.
const kept = 4096

func newFeed(h *house, log *audit.Log) *feed {
	newest := log.Found().Seq
	return &feed{house: h, log: log, heard: newest, durable: newest, knock: make(chan struct{}, 1), moved: make(chan struct{})}
}

// hear adds an entry. The audit log calls it under its own lock.
func (f *feed) hear(e approval.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = e.Seq
	if f.last = append(f.last, e); len(f.last) >= 2*kept {
		f.last = append(f.last[:0], f.last[len(f.last)-kept:]...)
	}
	if f.followers > 0 {
		f.stir()
	}
}

func (f *feed) stir() {
	select {
	case f.knock <- struct{}{}:
	default: // a signal is pending already
	}
}

// run syncs new entries while there are followers, until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.knock:
		}
		if f.catchUp() != nil {
			// The daemon's health reports the disk; here we only retry.
			if pauseFor(ctx, time.Second) != nil {
				return
			}
			f.stir()
		}
	}
}

// catchUp syncs the log and notifies the followers.
func (f *feed) catchUp() error {
	f.mu.Lock()
	heard := f.heard
	f.mu.Unlock()
	if err := f.log.Sync(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if heard > f.durable {
		f.durable = heard
		close(f.moved)
		f.moved = make(chan struct{})
	}
	return nil
}

// Follow implements httpapi.Log.
func (f *feed) Follow() (stop func()) {
	f.mu.Lock()
	f.followers++
	f.mu.Unlock()
	if f.catchUp() != nil {
		f.stir()
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followers--
	}
}

// Moved implements httpapi.Log.
func (f *feed) Moved() (newest int64, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.durable, f.moved
}

// Since implements httpapi.Log.
func (f *feed) Since(seq int64, each func(approval.Entry) error) error {
	f.mu.Lock()
	durable := f.durable
	var list []approval.Entry
	here := len(f.last) > 0 && f.last[0].Seq <= seq+1
	for _, e := range f.last {
		if here && e.Seq > seq && e.Seq <= durable {
			list = append(list, e)
		}
	}
	f.mu.Unlock()
	if !here {
		return audit.EntriesAfter(f.house.fs, f.house.layout.Audit(), seq, func(e approval.Entry) error {
			if e.Seq > durable {
				return nil
			}
			return each(e)
		})
	}
	for _, e := range list {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

package home

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// LastRecords returns the keys of the n newest records, newest first.
func (h *Home) LastRecords(n int) ([]approval.Key, error) {
	type aged struct {
		key approval.Key
		at  time.Time
	}
	var all []aged
	names, err := h.Store.Workspaces(context.Background())
	if err != nil {
		return nil, err
	}
	for _, ws := range names {
		ids, _, err := h.Store.List(context.Background(), approval.DocRecord, ws)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if info, err := h.FS.Stat(filepath.Join(h.Layout.Records(ws), id+".json")); err == nil {
				all = append(all, aged{approval.Key{Workspace: ws, ID: id}, info.ModTime()})
			}
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return b.at.Compare(a.at) })
	var keys []approval.Key
	for _, r := range all[:min(n, len(all))] {
		keys = append(keys, r.key)
	}
	return keys, nil
}

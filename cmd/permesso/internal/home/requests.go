package home

import (
	"runtime/debug"

	"github.com/permesso-dev/permesso/approval/read"
)

// Requests reads the matching requests from the log, and missing outcomes from the records.
func (h *Home) Requests(k *Keys, q read.Query) (found []*read.Request, more bool, err error) {
	debug.SetGCPercent(400) // short process: garbage collection would take a third of its time
	return h.Viewer(k).Requests(q)
}

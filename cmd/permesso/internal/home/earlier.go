package home

import (
	"context"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
)

// Earlier finds the request that another one resubmits.
func Earlier(v *read.Viewer) func(p *approval.Pending) *chat.EarlierRequest {
	return func(p *approval.Pending) *chat.EarlierRequest {
		st := v.Resubmitted(context.Background(), p)
		if st == nil {
			return nil
		}
		return &chat.EarlierRequest{Request: st.Pending, Decision: st.Decision}
	}
}

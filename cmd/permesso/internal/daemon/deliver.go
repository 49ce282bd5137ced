package daemon

import (
	"context"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// deliver returns the channel of an adapter. places returns the chats of a workspace.
func (r *channelEnv) deliver(
	a deliver.Adapter, state chat.StateStore, changes <-chan approval.Key, places func(cfg *config.Config, ws string) []deliver.Place, feed func() bool,
) *deliver.Channel {
	return &deliver.Channel{
		Name: r.name, Adapter: a, State: state, Sent: r.sentStore,
		Viewer: r, Interceptor: r.interceptor(), Guard: r, Pauser: r, History: r,
		Workspaces: func() (all []deliver.Workspace) {
			cfg := r.s.Current()
			for _, name := range r.workspaces() {
				w := cfg.Workspaces[name]
				all = append(all, deliver.Workspace{Name: name, Language: w.Language, Quiet: w.QuietHours, Places: places(cfg, name)})
			}
			return all
		},
		Feed: feed, Style: r.s.style, Foot: r.s.foot, Changes: changes,
		Problem: r.reportIssue, Elsewhere: r.alert, Approve: "permesso approve",
		Log: func(err error) {
			r.s.log.Error().Str("via", r.name).Err(err).EmbedObject(console.Advice{Err: err}).Msg(r.name + " channel failed")
		},
	}
}

// Story implements deliver.Channel.
func (r *channelEnv) Story(ctx context.Context, k approval.Key) (read.Story, error) {
	st, err := r.viewer.Story(ctx, k)
	if st.SHA256 != "" && !r.asks(st.Pending) {
		return read.Story{}, err // not for this channel, even if a hint names it
	}
	return st, err
}

// May implements deliver.Channel.
func (r *channelEnv) May(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	return r.decider.May(ws, p, by)
}

// Refused implements deliver.Channel.
func (r *channelEnv) Refused(k approval.Key, by approval.Person) {
	r.decider.Refused(k, by, r.name)
}

// Pause implements deliver.Channel.
func (r *channelEnv) Pause(ctx context.Context, ws string, by approval.Person, reason string) (changed bool, err error) {
	p, err := r.s.control.Pause(ctx, pauser(ws, by, r.name), ws, reason)
	return !p.Already, err
}

// Resume implements deliver.Channel.
func (r *channelEnv) Resume(ctx context.Context, ws string, by approval.Person) (changed bool, err error) {
	was, err := r.s.control.Resume(ctx, pauser(ws, by, r.name), ws)
	return was.Paused, err
}

// Last implements deliver.Channel.
func (r *channelEnv) Last(_ context.Context, workspaces []string, n int) ([]approval.Key, error) {
	if len(workspaces) == 0 {
		return nil, nil // an empty list would mean every workspace
	}
	found, _, err := r.viewer.Requests(read.Query{Workspaces: workspaces, Limit: n, Match: (*read.Request).Ended})
	var keys []approval.Key
	for _, x := range found {
		keys = append(keys, x.Key)
	}
	return keys, err
}

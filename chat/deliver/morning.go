package deliver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// quietPeriod lists what was asked of a workspace during quiet hours.
type quietPeriod struct {
	Asked    []string `json:"asked"`          // request IDs
	Notified []string `json:"told,omitempty"` // places that got the morning message
}

// maxAsked limits the requests of one morning message.
const maxAsked = 200

func quietName(ws string) string { return "night-" + ws + ".json" }

// noteQuietRequest records a request for the morning message. It may be lost: its card was sent anyway.
func (s *session) noteQuietRequest(ws Workspace, k approval.Key) {
	if !ws.Quiet.Covers(s.now()) {
		return
	}
	s.quietMu.Lock()
	defer s.quietMu.Unlock()
	n, err := s.loadQuiet(ws.Name)
	if err == nil && !slices.Contains(n.Asked, k.ID) && len(n.Asked) < maxAsked {
		n.Asked, n.Notified = append(n.Asked, k.ID), nil
		err = s.save(quietName(ws.Name), n)
		s.quietKnown[ws.Name] = true
	}
	s.log(err)
}

func (s *session) loadQuiet(ws string) (n quietPeriod, err error) {
	err = s.load(quietName(ws), &n)
	return n, err
}

// sendMorningMessages queues the morning messages after quiet hours.
func (s *session) sendMorningMessages() {
	for _, ws := range s.Workspaces() {
		if !ws.Quiet.Covers(s.now()) && s.hasQuiet(ws.Name) {
			s.log(s.queueMorning(ws))
		}
	}
}

// hasQuiet reports whether a morning message may be due. It reads the disk once per session.
func (s *session) hasQuiet(ws string) bool {
	known, asked := s.quietKnown[ws]
	if asked {
		return known
	}
	_, err := s.State.Get(quietName(ws))
	s.quietKnown[ws] = err == nil
	return err == nil
}

// queueMorning queues the morning message for every place. The record is removed when all places have it,
// however long Telegram is unreachable.
func (s *session) queueMorning(ws Workspace) error {
	n, err := s.loadQuiet(ws.Name)
	left := slices.DeleteFunc(slices.Clone(ws.Places), n.notifiedIn)
	if err != nil || len(left) == 0 {
		s.quietKnown[ws.Name] = false
		return errors.Join(err, s.State.Remove(quietName(ws.Name)))
	}
	for _, to := range left {
		s.outbox.put(to.Chat, job{
			name: quietName(ws.Name) + " " + placeName(to), rank: rankNotice,
			do: func(ctx context.Context) error { return s.sendMorning(ctx, ws.Name, to) },
		}, 0)
	}
	return nil
}

func placeName(to Place) string {
	return string(to.Chat) + "/" + to.Thread.inName()
}

func (n quietPeriod) notifiedIn(to Place) bool { return slices.Contains(n.Notified, placeName(to)) }

// sendMorning sends the morning message to one place, if there is something to report, and records that.
func (s *session) sendMorning(ctx context.Context, name string, to Place) error {
	ws, _ := s.workspace(name)
	n, err := s.loadQuiet(name)
	if err != nil || n.notifiedIn(to) || ws.Quiet.Covers(s.now()) || !slices.ContainsFunc(ws.Places, func(p Place) bool { return placeName(p) == placeName(to) }) {
		return nil //nolint:nilerr // the next pass retries
	}
	waiting, expired, err := s.sortAsked(ctx, name, n)
	if err != nil {
		return err
	}
	if len(waiting)+len(expired) > 0 {
		_, err = s.send(ctx, to.Address, s.morningMessage(ctx, ws, to, waiting, expired))
	}
	if err != nil && !never(err) {
		return err
	}
	s.quietMu.Lock()
	defer s.quietMu.Unlock()
	if n, err = s.loadQuiet(name); err != nil || len(n.Asked) == 0 {
		return err
	}
	n.Notified = append(n.Notified, placeName(to))
	return s.save(quietName(name), n)
}

// sortAsked splits the recorded requests into pending and expired ones.
func (s *session) sortAsked(ctx context.Context, ws string, n quietPeriod) (waiting, expired []approval.Key, err error) {
	for _, id := range n.Asked {
		k := approval.Key{Workspace: ws, ID: id}
		story, err := s.Viewer.Story(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case isPending(story):
			waiting = append(waiting, k)
		case story.Record != nil && story.Record.Status == approval.StatusExpired:
			expired = append(expired, k)
		}
	}
	return waiting, expired, nil
}

func (s *session) morningMessage(ctx context.Context, ws Workspace, to Place, waiting, expired []approval.Key) Message {
	t := s.renderer(cmp.Or(to.Language, ws.Language))
	shown := []string{chat.Format(t.MorningTitle, "workspace", ws.Name, "waiting", strconv.Itoa(len(waiting)), "expired", strconv.Itoa(len(expired)))}
	var open []listed
	for i, k := range append(slices.Clone(waiting), expired...) {
		if len(shown) > maxLines {
			shown = append(shown, chat.Format(t.AndMore, "n", strconv.Itoa(len(waiting)+len(expired)-maxLines)))
			break
		}
		story, err := s.Viewer.Story(ctx, k)
		if err != nil || story.Pending == nil {
			continue
		}
		line := strconv.Itoa(i+1) + " ⌛ " + Truncate(t.Line(story.Pending), maxLineLength)
		if i < len(waiting) {
			open = append(open, listed{i + 1, story.Pending})
			line = t.openLine(open[len(open)-1])
		}
		shown = append(shown, line)
	}
	msg := plain(shown...)
	msg.Buttons = s.openButtons(t, open, to.Chat)
	return msg
}

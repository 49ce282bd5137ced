package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
)

// night is what was asked of a workspace while its people were not to be woken.
type night struct {
	Asked []string `json:"asked"` // ids
}

// mostAsked is how many of one night are told of in the morning.
const mostAsked = 200

func nightName(ws string) string { return "night-" + ws + ".json" }

// atNight notes that something is asked in quiet hours, for the morning. It may be lost: the cards are
// there all the same.
func (s *session) atNight(ws Workspace, k approval.Key) {
	if !ws.Quiet.Covers(s.now()) {
		return
	}
	n, err := s.night(ws.Name)
	if err == nil && !slices.Contains(n.Asked, k.ID) && len(n.Asked) < mostAsked {
		n.Asked = append(n.Asked, k.ID)
		err = s.keepNight(ws.Name, n)
		s.nightsKnown[ws.Name] = true
	}
	if err != nil {
		s.log(err)
	}
}

func (s *session) night(ws string) (n night, err error) {
	b, err := s.Notes.Get(nightName(ws))
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return night{}, fmt.Errorf("read the night of %s: %w", ws, err)
	}
	return n, nil
}

func (s *session) keepNight(ws string, n night) error {
	b, err := json.Marshal(n)
	if err == nil {
		err = s.Notes.Put(nightName(ws), b)
	}
	if err != nil {
		return fmt.Errorf("note the night of %s: %w", ws, err)
	}
	return nil
}

// nights tells, where a night is over, what waited in it and what expired.
func (s *session) nights(ctx context.Context) {
	for _, ws := range s.Workspaces() {
		if ws.Quiet.Covers(s.now()) || !s.nightKnown(ws.Name) {
			continue
		}
		n, err := s.night(ws.Name)
		if err == nil {
			err = s.morning(ctx, ws, n)
		}
		if err != nil {
			s.log(err)
		}
		if err := s.Notes.Remove(nightName(ws.Name)); err != nil {
			s.log(err)
		}
		s.nightsKnown[ws.Name] = false
	}
}

// nightKnown says whether there may be something to tell; the disk is asked once in a life.
func (s *session) nightKnown(ws string) bool {
	known, asked := s.nightsKnown[ws]
	if asked {
		return known
	}
	_, err := s.Notes.Get(nightName(ws))
	s.nightsKnown[ws] = err == nil
	return err == nil
}

// morning sends one message about a night.
func (s *session) morning(ctx context.Context, ws Workspace, n night) error {
	var waiting, expired []approval.Key
	for _, id := range n.Asked {
		k := approval.Key{Workspace: ws.Name, ID: id}
		st, err := s.Viewer.Story(ctx, k)
		if err != nil {
			return err
		}
		switch {
		case st.waits():
			waiting = append(waiting, k)
		case st.Record != nil && st.Record.Status == approval.StatusExpired:
			expired = append(expired, k)
		}
	}
	if len(waiting)+len(expired) == 0 {
		return nil
	}
	for _, to := range ws.Places {
		s.greet(ctx, ws, to, waiting, expired)
	}
	return nil
}

func (s *session) greet(ctx context.Context, ws Workspace, to Place, waiting, expired []approval.Key) {
	if to.Language == "" {
		to.Language = ws.Language
	}
	t := s.painter(to.Language)
	lines := []string{say(t.morning, "workspace", ws.Name, "waiting", strconv.Itoa(len(waiting)), "expired", strconv.Itoa(len(expired)))}
	var faces []face
	for i, k := range append(slices.Clone(waiting), expired...) {
		if len(lines) > mostLines {
			lines = append(lines, say(t.more, "n", strconv.Itoa(len(waiting)+len(expired)-mostLines)))
			break
		}
		st, err := s.Viewer.Story(ctx, k)
		if err != nil || st.Pending == nil {
			continue
		}
		mark := "⏳ "
		if i >= len(waiting) {
			mark = "⌛ "
		} else if n := s.opener(k, to.Chat); n != "" {
			faces = append(faces, face{st.Pending.ShortID, verbOpen + ":" + n})
		}
		lines = append(lines, mark+cut(t.Line(st.Pending), maxLine))
	}
	l := plain(lines...)
	l.rows = slices.Collect(slices.Chunk(faces, 2))
	s.reply(to.Chat, to.Thread, 0, l)
}

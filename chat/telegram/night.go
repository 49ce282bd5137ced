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
	Asked []string `json:"asked"`          // ids
	Told  []string `json:"told,omitempty"` // the places that have heard of it
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
	s.nightly.Lock()
	defer s.nightly.Unlock()
	n, err := s.night(ws.Name)
	if err == nil && !slices.Contains(n.Asked, k.ID) && len(n.Asked) < mostAsked {
		n.Asked, n.Told = append(n.Asked, k.ID), nil
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
func (s *session) nights() {
	for _, ws := range s.Workspaces() {
		if ws.Quiet.Covers(s.now()) || !s.nightKnown(ws.Name) {
			continue
		}
		if err := s.morning(ws); err != nil {
			s.log(err)
		}
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

// morning has every place told of a night. It is forgotten when all have been, which may take as long as
// Telegram is away.
func (s *session) morning(ws Workspace) error {
	n, err := s.night(ws.Name)
	left := slices.DeleteFunc(slices.Clone(ws.Places), n.toldIn)
	if err != nil || len(left) == 0 {
		s.nightsKnown[ws.Name] = false
		return errors.Join(err, s.Notes.Remove(nightName(ws.Name)))
	}
	for _, to := range left {
		s.outbox.put(to.Chat, job{
			name: nightName(ws.Name) + " " + mark(to), rank: rankNotice,
			do: func(ctx context.Context) error { return s.greet(ctx, ws.Name, to) },
		}, 0)
	}
	return nil
}

func mark(to Place) string {
	return strconv.FormatInt(to.Chat, 10) + "/" + strconv.Itoa(to.Thread)
}

func (n night) toldIn(to Place) bool { return slices.Contains(n.Told, mark(to)) }

// greet sends one message about a night, where there is something to tell, and notes that.
func (s *session) greet(ctx context.Context, name string, to Place) error {
	ws, _ := s.workspace(name)
	n, err := s.night(name)
	if err != nil || n.toldIn(to) || ws.Quiet.Covers(s.now()) || !slices.ContainsFunc(ws.Places, func(p Place) bool { return mark(p) == mark(to) }) {
		return nil //nolint:nilerr // the next look tells of it
	}
	waiting, expired, err := s.wasAsked(ctx, name, n)
	if err != nil {
		return err
	}
	if len(waiting)+len(expired) > 0 {
		_, err = s.api.send(ctx, to.Chat, s.greeting(ctx, ws, to, waiting, expired), how{thread: to.Thread})
	}
	if err != nil && troubleOf(err) != refused {
		return err
	}
	s.nightly.Lock()
	defer s.nightly.Unlock()
	if n, err = s.night(name); err != nil || len(n.Asked) == 0 {
		return err
	}
	n.Told = append(n.Told, mark(to))
	return s.keepNight(name, n)
}

// wasAsked sorts what was asked in a night by what became of it.
func (s *session) wasAsked(ctx context.Context, ws string, n night) (waiting, expired []approval.Key, err error) {
	for _, id := range n.Asked {
		k := approval.Key{Workspace: ws, ID: id}
		st, err := s.Viewer.Story(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case st.waits():
			waiting = append(waiting, k)
		case st.Record != nil && st.Record.Status == approval.StatusExpired:
			expired = append(expired, k)
		}
	}
	return waiting, expired, nil
}

func (s *session) greeting(ctx context.Context, ws Workspace, to Place, waiting, expired []approval.Key) look {
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
	return l
}

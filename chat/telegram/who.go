package telegram

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
)

// personOf is who wrote a message, if a person did, with their own hands and just now. What was forwarded,
// edited, sent through a bot or in the name of a group or a channel was not, and decides nothing.
func personOf(m *models.Message) (p approval.Person, ok bool) {
	switch {
	case m.From == nil || m.From.IsBot || m.From.ID <= 0,
		m.SenderChat != nil || m.ViaBot != nil || m.SenderBusinessBot != nil || m.BusinessConnectionID != "",
		m.ForwardOrigin != nil || m.IsAutomaticForward || m.EditDate != 0:
		return p, false
	case m.Chat.Type == models.ChatTypePrivate:
		return person(m.From.ID), m.Chat.ID == m.From.ID
	}
	return person(m.From.ID), m.Chat.Type == models.ChatTypeGroup || m.Chat.Type == models.ChatTypeSupergroup
}

// person is somebody by the one id of theirs that they cannot choose.
func person(id int64) approval.Person {
	return approval.Person{Channel: Via, ID: strconv.FormatInt(id, 10)}
}

// threadOf is the forum topic of a message; elsewhere a message_thread_id is only that of a row of replies.
func threadOf(m *models.Message) int {
	if m.IsTopicMessage {
		return m.MessageThreadID
	}
	return 0
}

// here lists the workspaces that are asked about in a chat.
func (s *session) here(chatID int64, thread int) []Workspace {
	return slices.DeleteFunc(s.Workspaces(), func(ws Workspace) bool {
		return !slices.ContainsFunc(ws.Places, func(p Place) bool {
			return p.Chat == chatID && (p.Thread == 0 || p.Thread == thread)
		})
	})
}

// theirs lists the names of those workspaces in which the person may decide.
func (s *session) theirs(all []Workspace, by approval.Person) []string {
	var names []string
	for _, ws := range all {
		if _, ok := s.Guard.May(ws.Name, nil, by); ok {
			names = append(names, ws.Name)
		}
	}
	return names
}

// languageHere is what is spoken in a chat.
func languageHere(all []Workspace, chatID int64) string {
	for _, ws := range all {
		for _, p := range ws.Places {
			if p.Chat == chatID && p.Language != "" {
				return p.Language
			}
		}
	}
	for _, ws := range all {
		return ws.Language
	}
	return ""
}

// The patience with somebody who keeps trying what is not theirs.
const (
	mostRefusals  = 5
	refusalWindow = time.Minute
	maxStrangers  = 1000
)

// strangers remembers who was refused, and when.
type strangers struct {
	mu sync.Mutex
	at map[int64][]time.Time
}

// refuse counts a refusal, and says whether to speak of it: somebody who was refused often is met with
// silence.
func (x *strangers) refuse(id int64, now time.Time) (speak bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at == nil {
		x.at = map[int64][]time.Time{}
	}
	old := func(t time.Time) bool { return now.Sub(t) >= refusalWindow }
	if len(x.at) >= maxStrangers {
		for i, times := range x.at {
			if old(times[len(times)-1]) {
				delete(x.at, i)
			}
		}
	}
	times := slices.DeleteFunc(x.at[id], old)
	if len(times) >= mostRefusals || len(x.at) >= maxStrangers && x.at[id] == nil {
		return false
	}
	x.at[id] = append(times, now)
	return true
}

// refuse has it audited that somebody tried what is not theirs, and says whether to answer at all.
func (s *session) refuse(k approval.Key, by int64) (speak bool) {
	if !s.strangers.refuse(by, s.now()) {
		return false
	}
	s.Guard.Refused(k, person(by))
	return true
}

package telegram

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
)

// directSender returns the user who wrote a message directly. Messages that were forwarded, edited, sent
// through a bot, or sent in the name of a group or a channel have none, and decide nothing.
func directSender(m *models.Message) (p approval.Person, ok bool) {
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

// person identifies a user by the numeric ID, which users cannot choose.
func person(id int64) approval.Person {
	return approval.Person{Channel: Via, ID: strconv.FormatInt(id, 10)}
}

// threadOf is the forum topic of a message. Outside of forums, message_thread_id is only a chain of replies.
func threadOf(m *models.Message) int {
	if m.IsTopicMessage {
		return m.MessageThreadID
	}
	return 0
}

// workspacesAt lists the workspaces that are asked in a chat or topic.
func (s *session) workspacesAt(chatID int64, thread int) []Workspace {
	return slices.DeleteFunc(s.Workspaces(), func(ws Workspace) bool {
		return !slices.ContainsFunc(ws.Places, func(p Place) bool {
			return p.Chat == chatID && (p.Thread == 0 || p.Thread == thread)
		})
	})
}

// mayDecideIn lists the names of the workspaces in which the user may decide.
func (s *session) mayDecideIn(all []Workspace, by approval.Person) []string {
	var names []string
	for _, ws := range all {
		if _, ok := s.Guard.May(ws.Name, nil, by); ok {
			names = append(names, ws.Name)
		}
	}
	return names
}

// languageIn is the language of a chat.
func languageIn(all []Workspace, chatID int64) string {
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

// Limits on the refusals sent to one user.
const (
	maxRefusals   = 5
	refusalWindow = time.Minute
	maxRefused    = 1000
)

// refusals counts recent refusals by user.
type refusals struct {
	mu sync.Mutex
	at map[int64][]time.Time
}

// count counts a refusal, and reports whether to send it: a user gets at most maxRefusals per refusalWindow.
func (x *refusals) count(id int64, now time.Time) (speak bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at == nil {
		x.at = map[int64][]time.Time{}
	}
	old := func(t time.Time) bool { return now.Sub(t) >= refusalWindow }
	if len(x.at) >= maxRefused {
		for i, times := range x.at {
			if old(times[len(times)-1]) {
				delete(x.at, i)
			}
		}
	}
	times := slices.DeleteFunc(x.at[id], old)
	if len(times) >= maxRefusals || len(x.at) >= maxRefused && x.at[id] == nil {
		return false
	}
	x.at[id] = append(times, now)
	return true
}

// auditRefusal writes an audit entry about a refused user, and reports whether to send the refusal.
func (s *session) auditRefusal(k approval.Key, by int64) (speak bool) {
	if !s.refusals.count(by, s.now()) {
		return false
	}
	s.Guard.Refused(k, person(by))
	return true
}

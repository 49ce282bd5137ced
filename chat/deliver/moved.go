package deliver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// movedFile holds the chats that have a new ID.
const movedFile = "moved.json"

// moves maps old IDs of chats to new ones.
type moves struct {
	mu sync.Mutex
	to map[ID]ID
}

func (s *session) loadMoves() error {
	s.moves.to = map[ID]ID{}
	return s.load(movedFile, &s.moves.to)
}

// chatMoved takes over the new ID of a chat, durably: its cards go there from now on.
func (s *session) chatMoved(from, to ID) {
	s.moves.mu.Lock()
	defer s.moves.mu.Unlock()
	if from == to || to == "" || s.moves.to[from] == to {
		return
	}
	next := maps.Clone(s.moves.to)
	delete(next, to) // no circle
	next[from] = to
	if err := s.save(movedFile, next); err != nil {
		s.log(err) // the next message to the chat tries again
		return
	}
	s.moves.to = next
	s.touchAll()
}

// current is the ID that a configured chat has now.
func (s *session) current(chatID ID) ID {
	s.moves.mu.Lock()
	defer s.moves.mu.Unlock()
	for range len(s.moves.to) {
		to, ok := s.moves.to[chatID]
		if !ok {
			break
		}
		chatID = to
	}
	return chatID
}

// Workspaces returns the configured workspaces, with the IDs that their chats have now.
func (s *session) Workspaces() []Workspace {
	all := slices.Clone(s.Channel.Workspaces())
	for i, ws := range all {
		all[i].Places = slices.Clone(ws.Places)
		for j, to := range ws.Places {
			all[i].Places[j].Chat = s.current(to.Chat)
		}
	}
	return all
}

const movedWarningPrefix = "moved "

// warnMoved tells the operator which new IDs to write into the configuration.
func (s *session) warnMoved() {
	found := map[string]bool{}
	for _, ws := range s.Channel.Workspaces() {
		for _, to := range ws.Places {
			now := s.current(to.Chat)
			if now == to.Chat {
				continue
			}
			name := movedWarningPrefix + ws.Name + " " + string(to.Chat)
			found[name] = true
			hint := fmt.Sprintf("configure %s as the chat id of %s", now, ws.Name)
			if s.Configure != nil {
				hint = s.Configure(ws.Name, now)
			}
			s.warnings.set(name, fmt.Sprintf("%s chat %s has a new id, %s; cards go there", s.traits.Service, to.Chat, now), hint)
		}
	}
	for _, name := range s.warnings.names() {
		if strings.HasPrefix(name, movedWarningPrefix) && !found[name] {
			s.warnings.clear(name)
		}
	}
}

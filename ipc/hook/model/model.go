// Package model is a language model that answers from a script: it asks for calls, one turn after the other, and then says
// that it is done. With it an agent's program can be tried without an account, on this machine alone.
//
// It speaks the streaming APIs that the agents' programs use:
//
//	POST /v1/messages                                       Anthropic Messages
//	POST /v1/responses                                      OpenAI Responses
//	POST /v1beta/models/MODEL:streamGenerateContent?alt=sse Gemini
//
// and of each the form without a stream. A conversation's turn is the number of its messages that have results of calls, so
// that a server that was restarted goes on where it was.
package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Call is a call that the model asks for.
type Call struct {
	Tool string // as the agent names it
	Args string // JSON object
	In   string // the namespace of the tool, where the agent's API has such ("": none)
}

// Server is the model.
type Server struct {
	Turns [][]Call // the calls of each turn; after the last one it is done
	Again []string // texts of results after which it makes the calls of that turn once more

	mu      sync.Mutex
	results []string // of calls, as the agent reported them
	tools   []string // that the agent has offered
	asked   int
}

// Done is the model's last sentence.
const Done = "All calls have been made."

// maxBody is larger than any conversation of a script, in bytes.
const maxBody = 64 << 20

// Results are what the agent has reported of its calls, in the order in which they came.
func (s *Server) Results() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.results...)
}

// Tools are the names of the tools that the agent offered last.
func (s *Server) Tools() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tools...)
}

// Asked is how often the agent has asked with tools to call.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := r.URL.Path
	switch {
	case r.Method != http.MethodPost:
		reply(w, map[string]any{"data": []any{}, "models": []any{}})
	case strings.HasSuffix(path, "/messages/count_tokens"):
		reply(w, map[string]any{"input_tokens": 1})
	case strings.HasSuffix(path, ":countTokens"):
		reply(w, map[string]any{"totalTokens": 1})
	case strings.HasSuffix(path, "/messages"):
		s.messages(w, body)
	case strings.HasSuffix(path, "/responses"):
		s.responses(w, body)
	case strings.HasSuffix(path, ":streamGenerateContent"), strings.HasSuffix(path, ":generateContent"):
		s.generate(w, body, strings.HasSuffix(path, ":streamGenerateContent"))
	default:
		http.NotFound(w, r)
	}
}

// turn is what the model says to a conversation with these results so far: calls, or nothing more.
func (s *Server) turn(tools, results []string, turns int) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(tools) == 0 { // a title for the conversation, or the like
		return nil
	}
	s.asked++
	s.tools = tools
	if len(results) > len(s.results) {
		s.results = results
	}
	for _, result := range results {
		if slices.ContainsFunc(s.Again, func(text string) bool { return strings.Contains(result, text) }) {
			turns--
		}
	}
	if turns < 0 || turns >= len(s.Turns) {
		return nil
	}
	return s.Turns[turns]
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // maps of texts and numbers; if the agent has gone, no one reads it
}

// stream writes server-sent events.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return stream{w}
}

// send writes one event; name "" has only data.
func (s stream) send(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	if name != "" {
		fmt.Fprintf(s.w, "event: %s\n", name)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", b)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

type object = map[string]any

// text is a result in any of the forms in which the agents report one.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

package botapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// FaultKind is a way to fail.
type FaultKind int

// Only AnswerLost and AnswerHangs execute the call.
const (
	Offline     FaultKind = iota // closes the connection without an answer
	TooMany                      // 429 with retry_after
	BadGateway                   // 502 with an HTML page
	Hang                         // no answer until the client gives up
	AnswerLost                   // executes the call, then closes the connection without an answer
	AnswerHangs                  // executes the call, then gives no answer until the client gives up
)

func (k FaultKind) String() string {
	return [...]string{"offline", "too many requests", "bad gateway", "hang", "answer lost", "answer hangs"}[k]
}

// code is what the client sees.
func (k FaultKind) code() int {
	switch k {
	case TooMany:
		return http.StatusTooManyRequests
	case BadGateway:
		return http.StatusBadGateway
	default:
		return 0
	}
}

// Fault makes a method fail.
type Fault struct {
	Kind       FaultKind
	Times      int // 0: until ClearFaults
	RetryAfter int // seconds, for TooMany; 0: 1
}

// Fail makes calls of a method fail from now on; "" means every method without a fault of its own.
func (s *Server) Fail(method string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	setIn(&s.faults, strings.ToLower(method), &f)
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault returns the fault for a call of the method, or nil.
func (s *Server) takeFault(method string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{strings.ToLower(method), ""} {
		f, ok := s.faults[name]
		if !ok {
			continue
		}
		met := *f
		if f.Times == 1 {
			delete(s.faults, name)
		}
		f.Times--
		return &met
	}
	return nil
}

// fail fails a call without executing it.
func (f *Fault) fail(s *Server, w http.ResponseWriter, r *http.Request) (failed bool) {
	switch f.Kind {
	case Offline:
		closeConnection(w)
	case TooMany:
		reply(w, nil, tooMany(time.Duration(max(f.RetryAfter, 1))*time.Second))
	case BadGateway:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n")
	case Hang:
		s.hang(w, r)
	case AnswerLost, AnswerHangs:
		return false
	}
	return true
}

// hang closes the connection when the client gives up.
func (s *Server) hang(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	select {
	case <-r.Context().Done():
	case <-closing:
	}
	closeConnection(w)
}

func closeConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close()
}

type limiter struct {
	full   map[int64]time.Time   // when a chat may get five at once again
	groups map[int64][]time.Time // send times of the last minute
	all    []time.Time           // send times of the last second
}

// chatBurst is how many messages a chat may get at once after a pause.
const chatBurst = 5

// allow counts a message to a chat, or refuses it. It needs s.mu.
func (s *Server) allow(chat *Chat) {
	if !s.Limits {
		return
	}
	now, l := s.now(), &s.limiter
	if l.full == nil {
		l.full, l.groups = map[int64]time.Time{}, map[int64][]time.Time{}
	}
	full := l.full[chat.ID]
	if full.Before(now) {
		full = now
	}
	group := inWindow(l.groups[chat.ID], now, time.Minute)
	all := inWindow(l.all, now, time.Second)
	wait := max(full.Sub(now)-(chatBurst-1)*time.Second, waitTime(all, 30, now, time.Second))
	if chat.Type != Private {
		wait = max(wait, waitTime(group, 20, now, time.Minute))
	}
	if wait > 0 {
		panic(tooMany(wait))
	}
	group, all = append(group, now), append(all, now)
	l.full[chat.ID], l.groups[chat.ID], l.all = full.Add(time.Second), group, all
}

// inWindow returns the times within the last period of that length.
func inWindow(times []time.Time, now time.Time, length time.Duration) []time.Time {
	return slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return now.Sub(t) >= length })
}

// waitTime returns how long it takes until fewer than most of the times are in the window.
func waitTime(times []time.Time, most int, now time.Time, length time.Duration) time.Duration {
	if len(times) < most {
		return 0
	}
	return times[len(times)-most].Add(length).Sub(now)
}

// tooMany is a 429. Telegram uses whole seconds.
func tooMany(wait time.Duration) *refusal {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &refusal{
		Code:        http.StatusTooManyRequests,
		Description: fmt.Sprintf("Too Many Requests: retry after %d", seconds),
		Parameters:  &parameters{RetryAfter: seconds},
	}
}

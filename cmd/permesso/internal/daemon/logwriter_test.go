package daemon

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestLogLevelAndFormatChangeWhileRunning(t *testing.T) {
	var b bytes.Buffer
	l, w := NewLog(&b, "warn", "auto")
	l.Info().Msg("quiet")
	require.Empty(t, b.String())
	w.set("debug", "console")
	l.Debug().Str("ws", "a b").Str("id", "ff").Int("keys", 3).Msg("loud")
	require.Regexp(t, `^\d\d:\d\d:\d\d DBG loud ws="a b" id=ff keys=3\n$`, b.String())
	b.Reset()
	w.set("nonsense", "json")
	l.Debug().Msg("quiet")
	l.Info().Msg("loud")
	require.Regexp(t, `^\{"level":"info","time":"[^"]+","message":"loud"\}\n$`, b.String())
	require.Equal(t, zerolog.InfoLevel, zerolog.Level(w.level.Load()))
}

// Libraries write to the log of the standard library: what a server sends unasked, for example. Each is one line of ours.
func TestStandardLogIsOurs(t *testing.T) {
	var b lockedBuffer
	l, _ := NewLog(&b, "info", "json")
	defer takeStandardLog(l)()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go func() {
		c, err := server.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		_, _ = io.WriteString(c, "HTTP/1.1 500 \"a\"\u202e\r\n\r\n")
		_, _ = c.Read(make([]byte, 1)) // until the client closes
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + server.Addr().String())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool { return strings.HasSuffix(b.String(), "\n") }, 20*time.Second, 10*time.Millisecond)
	require.Regexp(t, `^\{"level":"warn","time":"[^"]+","message":"Unsolicited response received on idle HTTP channel [^\n]+"\}\n$`, b.String())
}

// The panic of a handler is one line with the place in the source. Its value may have an agent's text.
func TestPanicOfAHandlerIsLogged(t *testing.T) {
	var b lockedBuffer
	l, _ := NewLog(&b, "info", "json")
	defer takeStandardLog(l)()
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("planted: a\nplanted") })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l2) }()
	_, err = http.Get("http://" + l2.Addr().String()) //nolint:bodyclose // there is no answer
	require.Error(t, err)
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.Eventually(t, func() bool { return strings.HasSuffix(b.String(), "\n") }, 20*time.Second, 10*time.Millisecond)
	require.Regexp(t, `^\{"level":"error","err":"goroutine [^\n]*logwriter_test\.go:[^\n]*","time":"[^"]+","message":"http: panic serving"\}\n$`, b.String())
	require.NotContains(t, b.String(), "planted")
}

// Each kind of line comes ten times at once, then once a minute: a client may cause it.
func TestStandardLogIsLimited(t *testing.T) {
	var b lockedBuffer
	l, _ := NewLog(&b, "info", "json")
	defer takeStandardLog(l)()
	for range 100 {
		log.Print("http: URL query contains semicolon, which is no longer a separator")
	}
	log.Print("http: superfluous response.WriteHeader call from a.go: a client went away")
	log.Print("http: Accept error: too many open files; retrying in 5ms")
	require.Equal(t, 11, strings.Count(b.String(), "\n"))
	require.Contains(t, b.String(), "Accept error")
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

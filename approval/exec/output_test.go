package exec

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// blockingWriter blocks its first write until the test proceeds.
type blockingWriter struct {
	strings.Builder
	began, proceed chan struct{}
}

func (s *blockingWriter) Write(b []byte) (int, error) {
	if s.began != nil {
		close(s.began)
		<-s.proceed
		s.began = nil
	}
	return s.Builder.Write(b)
}

// The read deadline expires before everything was read, while another process
// holds the pipe open. The written data must not be lost.
func TestLateReaderLosesNoOutput(t *testing.T) {
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	text := strings.Repeat("0123456789", 3000)
	_, err = in.WriteString(text)
	require.NoError(t, err)

	s := &blockingWriter{began: make(chan struct{}), proceed: make(chan struct{})}
	c := collect(out, s)
	<-s.began
	require.NoError(t, out.SetReadDeadline(time.Now().Add(-time.Hour)))
	close(s.proceed)
	<-c.done
	require.Equal(t, text, s.String())
}

func TestFinishDoesNotWaitForOpenPipe(t *testing.T) {
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	h := newHead(10)
	c := collect(out, h)
	_, err = in.WriteString("hello")
	require.NoError(t, err)
	c.finish()
	require.Equal(t, "hello", string(h.kept))
}

func TestTail(t *testing.T) {
	var last tail
	for i := range 5000 {
		n, err := last.Write([]byte{byte('0' + i%10)})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, strings.Repeat("0123456789", 300)[3000-tailSize:], last.String())
	n, err := last.Write([]byte("x" + strings.Repeat("€", tailSize)))
	require.NoError(t, err)
	require.Equal(t, 1+3*tailSize, n, "a writer takes everything")
	require.Equal(t, strings.Repeat("€", tailSize/3), last.String(), "cut at a character")
	var bad tail
	_, _ = bad.Write([]byte(" a\xff\xfeb \n"))
	require.Equal(t, "a\uFFFDb", bad.String())
}

package exec

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// scriptedMCP is an MCP server that answers with these bytes, one after the other, the last again and again.
type scriptedMCP struct {
	answers []string
	errs    []error
	calls   []string
	done    chan struct{}
}

func (s *scriptedMCP) Pipes(context.Context, io.WriteCloser, io.ReadCloser) (MCPConn, error) {
	return nil, errors.New("no pipes")
}
func (s *scriptedMCP) HTTP(context.Context, string, *http.Client) (MCPConn, error) { return s, nil }
func (s *scriptedMCP) Done() <-chan struct{}                                       { return s.done }
func (s *scriptedMCP) Close() error                                                { return nil }

func (s *scriptedMCP) Call(_ context.Context, method string, params approval.Raw) (approval.Raw, error) {
	s.calls = append(s.calls, method+" "+string(params))
	n := len(s.calls) - 1
	if n < len(s.errs) && s.errs[n] != nil {
		return nil, s.errs[n]
	}
	return approval.Raw(s.answers[min(n, len(s.answers)-1)]), nil
}

// What a server answers is hostile until it is strict JSON of the form of MCP.
func TestAnswersOfAnMCPServer(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("1234567890"), 0o600))
	h := mcpHandler()
	h.HTTP.SecretHeaders = map[string]string{"X-Key": secret}
	const content = `[{"type":"text","text":"x"}]`
	for name, tt := range map[string]struct {
		answer string
		want   string // of the result, or of the error
	}{
		"a result":               {`{"content":` + content + `}`, `{"content":` + content + `}`},
		"bytes stay":             {`{ "structuredContent" : {"n": 1.50e1, "s":"\u00e9\/"},"content" : [ ],"_meta":{"dev.permesso/receipt":"x"}}`, `{"content":[ ],"structuredContent":{"n": 1.50e1, "s":"\u00e9\/"}}`},
		"no content":             {`{}`, `{"content":[]}`},
		"complete":               {`{"resultType":"complete","content":[]}`, `{"content":[]}`},
		"our token":              {`{"content":[{"type":"text","text":"1234\u0035\u0036\u0037890"}]}`, `{"content":[{"type":"text","text":"[redacted: secret of 10 characters]"}]}`},
		"our token as a number":  {`{"content":[],"structuredContent":{"n":1234567890}}`, "The tool has run, but its result is not returned: it holds a secret of this host that cannot be redacted"},
		"a large result":         {`{"content":[{"type":"text","text":"` + strings.Repeat("x", defaultMaxOutput) + `"}]}`, "The tool has run, but its result is not returned: it is larger than 262144 bytes (max_output)"},
		"an error":               {`{"isError":true,"content":[{"type":"text","text":"no 1234567890"},{"type":"image"},{"type":"text","text":"board"}]}`, "Execution failed: no [redacted: secret of 10 characters]\nboard"},
		"an error without text":  {`{"isError":true,"content":[]}`, "the tool reports an error without text"},
		"a long error":           {`{"isError":true,"content":[{"type":"text","text":"` + strings.Repeat("x", 5000) + `"}]}`, "Execution failed: " + strings.Repeat("x", tailSize) + "…"},
		"the same name twice":    {`{"content":[],"content":[]}`, "outcome unknown: the server's answer is not a strict JSON object"},
		"no object":              {`[]`, "not a strict JSON object"},
		"nothing":                {``, "not a strict JSON object"},
		"bad UTF-8":              {"{\"content\":[{\"text\":\"\xff\"}]}", "not a strict JSON object"},
		"too deep":               {`{"content":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "not a strict JSON object"},
		"another form":           {`{"isError":"no"}`, "outcome unknown: the server's answer has not the form of MCP"},
		"a question":             {`{"resultType":"input_required","content":[]}`, "asks for input, which no one can give here"},
		"an unknown type":        {`{"resultType":"\u001b[31m","content":[]}`, `outcome unknown: the server answers with resultType "\x1b[31m"`},
		"a task without id":      {`{"resultType":"task","status":"working"}`, "outcome unknown: the server started a task without a usable ID"},
		"a task with a long id":  {`{"resultType":"task","taskId":"` + strings.Repeat("x", 2000) + `"}`, "without a usable ID"},
		"a task that is not one": {`{"resultType":"task","taskId":"t","pollIntervalMs":-1}`, `outcome unknown: the server says that its task is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := newRunner(t), &scriptedMCP{answers: []string{tt.answer}, done: make(chan struct{})}
			r.MCP = s
			e := run(t, r, h, `{"a":  1}`)
			require.Equal(t, `tools/call {"name":"do","arguments":{"a":  1}}`, s.calls[0])
			if strings.HasPrefix(tt.want, "{") {
				require.Equal(t, approval.Effect{Result: approval.Raw(tt.want)}, e)
				return
			}
			require.Contains(t, e.Error, tt.want)
			require.False(t, e.Unstarted)
			require.NotContains(t, e.Error, "1234567890")
		})
	}
}

func mcpHandler() approval.Handler {
	return approval.Handler{
		Kind: approval.HandlerMCP, MCP: approval.MCP{Server: "s", Tool: "do"}, Timeout: time.Minute,
		HTTP: approval.HTTP{URL: "https://x.example/mcp"},
	}
}

// A connection that is lost while a task goes on loses no task. A server that keeps refusing does.
func TestMCPTaskAndErrors(t *testing.T) {
	const begun, done = `{"resultType":"task","taskId":"t\"1","pollIntervalMs":0}`, `{"status":"completed","result":{"content":[]}}`
	lost, busy := errors.New("lost"), &MCPError{-32603, "busy"}
	for name, tt := range map[string]struct {
		errs []error
		want string
	}{
		"none":           {nil, ""},
		"lost once":      {[]error{nil, lost}, ""},
		"busy, and lost": {[]error{nil, busy, lost, busy}, ""},
		"gone":           {[]error{nil, &MCPError{invalidParams, "gone"}}, "outcome unknown: the server does not know its task any more (error -32602: gone)"},
		"always busy":    {[]error{nil, busy, busy, busy, busy, busy}, "outcome unknown: the server keeps refusing to tell the status of its task: error -32603: busy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := newRunner(t), &scriptedMCP{answers: []string{begun, done}, errs: tt.errs, done: make(chan struct{})}
			r.MCP = s
			job := jobOf(mcpHandler(), `{}`)
			var kept []string
			job.KeepTask = func(b []byte) error { kept = append(kept, string(b)); return nil }
			e := r.Run(t.Context(), job)
			require.Equal(t, []string{`{"version":1,"task_id":"t\"1"}`}, kept)
			if tt.want == "" {
				require.Equal(t, approval.Effect{Result: approval.Raw(`{"content":[]}`)}, e)
			} else {
				require.Contains(t, e.Error, tt.want)
			}
			for _, c := range s.calls[1:] {
				require.Equal(t, `tasks/get {"taskId":"t\"1"}`, c)
			}
		})
	}
}

func TestMCPWithoutADialer(t *testing.T) {
	r := newRunner(t)
	require.Equal(t, "Execution refused: this program calls no MCP servers", run(t, r, mcpHandler(), `{}`).Error)
	job := jobOf(mcpHandler(), `{}`)
	job.Task = []byte(`{"version":1,"task_id":"t"}`)
	require.True(t, r.Resume(t.Context(), job).Unknown)
}

func TestMCPIdempotencyKey(t *testing.T) {
	r, s := newRunner(t), &scriptedMCP{answers: []string{`{}`}, done: make(chan struct{})}
	r.MCP = s
	job := jobOf(mcpHandler(), `{}`)
	job.Key = job.RequestID
	require.Empty(t, r.Run(t.Context(), job).Error)
	require.Equal(t, []string{`tools/call {"name":"do","arguments":{},"_meta":{"dev.permesso/idempotency-key":"` + job.RequestID + `"}}`}, s.calls)
}

package gate_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
)

// fakeHost has files in memory.
type fakeHost struct {
	lacks error
	files map[string]string
	asked []string // paths
}

func (f *fakeHost) Ready(approval.Handler) error { return f.lacks }

func (f *fakeHost) Size(path string) (int64, error) {
	text, err := f.Text(path, 1<<30)
	return int64(len(text)), err
}

func (f *fakeHost) Text(path string, limit int) (string, error) {
	f.asked = append(f.asked, path)
	text, ok := f.files[path]
	switch {
	case !ok:
		return "", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case len(text) > limit:
		return "", errors.New("too large")
	case strings.HasSuffix(path, ".device"):
		return "", errors.New("a device")
	}
	return text, nil
}

// ownDomains are the settings of a rig whose workspaces have a domain.
type ownDomains struct{ *rig }

func (s ownDomains) Workspace(name string) (approval.Workspace, bool) {
	ws, ok := s.rig.Workspace(name)
	ws.OwnDomains = []string{"example.org"}
	return ws, ok
}

func edit(argv ...string) approval.Tool {
	return approval.Tool{
		Name: "edit", Size: "path",
		Args: map[string]approval.Argument{
			"path": {Type: "path", Optional: true}, "content": {Type: "text", Writes: "path", Optional: true}, "n": {Type: "number", Optional: true},
		},
		Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: append([]string{"/bin/edit"}, argv...), Dir: "/srv"},
	}
}

// A pending has what the host's files say: the text that would be replaced, and a size.
func TestHostFacts(t *testing.T) {
	size := func(n int64) *int64 { return &n }
	before := func(text string) *approval.FileBefore {
		return &approval.FileBefore{Arg: "content", Exists: true, Text: text}
	}
	change := func(f func(*approval.Tool)) approval.Tool {
		tool := edit("{path}")
		f(&tool)
		return tool
	}
	sized := func(name string) approval.Tool { return change(func(t *approval.Tool) { t.Size = name }) }
	large := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		tool   approval.Tool
		args   string
		size   *int64
		before *approval.FileBefore
	}{
		"a file":                            {edit("{path}"), `{"path":"/etc/motd","content":"x"}`, size(6), before("hello\n")},
		"a file in the handler's folder":    {edit("{path}"), `{"path":"note","content":"x"}`, size(4), before("note")},
		"a path that is not cleaned":        {edit("{path}"), `{"path":"link/../note","content":"x"}`, size(6), before("linked")},
		"the path on standard input":        {edit(), `{"path":"/etc/motd","content":"x"}`, size(6), before("hello\n")},
		"the path after a name":             {edit("--out={path}"), `{"path":"/etc/motd","content":"x"}`, size(6), before("hello\n")},
		"a part of the path":                {edit("/other/{path}"), `{"path":"note","content":"x"}`, nil, nil},
		"a part of a name":                  {edit("{path}", "{path}.bak"), `{"path":"note","content":"x"}`, nil, nil},
		"no such file":                      {edit("{path}"), `{"path":"/none","content":"x"}`, nil, &approval.FileBefore{Arg: "content"}},
		"a device":                          {edit("{path}"), `{"path":"/x.device","content":"x"}`, nil, nil},
		"a secret":                          {edit("{path}"), `{"path":"/secret","content":"x"}`, size(9), nil},
		"64 KiB":                            {edit("{path}"), `{"path":"/64k","content":"x"}`, size(64 << 10), before(large)},
		"one byte more":                     {edit("{path}"), `{"path":"/64k+1","content":"x"}`, size(64<<10 + 1), nil},
		"a list of paths":                   {edit(), `{"path":["/etc/motd"],"content":"x"}`, nil, nil},
		"no path":                           {edit(), `{"content":"x"}`, nil, nil},
		"nothing to write":                  {edit("{path}"), `{"path":"/etc/motd"}`, size(6), nil},
		"no folder":                         {change(func(t *approval.Tool) { t.Handler.Dir = "" }), `{"path":"note","content":"x"}`, nil, nil},
		"an HTTP handler":                   {change(func(t *approval.Tool) { t.Handler = posts }), `{"path":"/etc/motd","content":"x"}`, nil, nil},
		"the size of a text":                {sized("content"), `{"path":"/none","content":"\u00e9x"}`, size(3), &approval.FileBefore{Arg: "content"}},
		"the size of another value":         {sized("n"), `{"path":"/none","content":"","n":12.50}`, size(5), &approval.FileBefore{Arg: "content"}},
		"the size of what is not given":     {sized("n"), `{"path":"/none","content":""}`, nil, &approval.FileBefore{Arg: "content"}},
		"a tool that declares none of this": {change(func(t *approval.Tool) { t.Size, t.Args = "", nil }), `{"path":"/etc/motd"}`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRig(t, options{inline: true, tools: map[string]approval.Tool{"edit": c.tool}})
			h.gate.Config = func() (gate.Settings, gate.Policy) { return ownDomains{h}, h.Policy }
			h.gate.Host = &fakeHost{files: map[string]string{
				"/etc/motd": "hello\n", "/srv/note": "note", "/srv/link/../note": "linked", "/secret": "password!", "/64k": large, "/64k+1": large + "x", "/x.device": "",
			}}
			h.gate.HoldsSecret = func(text string) bool { return strings.Contains(text, "password") }
			h.ask(key(1), request(key(1), "edit", c.args))
			p := h.pending(key(1))
			if strings.Contains(name, "device") {
				p.ObjectSize = nil
			}
			require.Equal(t, c.size, p.ObjectSize)
			require.Equal(t, c.before, p.Before)
			require.Equal(t, []string{"example.org"}, p.OwnDomains)
		})
	}
}

// posts is a handler without files.
var posts = approval.Handler{
	Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: "POST", URL: "https://api.example.org/", BodyArgs: true},
}

// Without a host, or without a search for secrets, no file is known.
func TestHostFactsAreUnknownByDefault(t *testing.T) {
	h := newRig(t, options{inline: true, tools: map[string]approval.Tool{"edit": edit("{path}")}})
	ask := func(n int) *approval.Pending {
		h.ask(key(n), request(key(n), "edit", `{"path":"/etc/motd","content":"x"}`))
		return h.pending(key(n))
	}
	require.Nil(t, ask(1).ObjectSize)
	require.Nil(t, ask(2).Before)
	h.gate.Host = &fakeHost{files: map[string]string{"/etc/motd": "hello\n"}}
	require.Nil(t, ask(3).Before)
	require.NotNil(t, ask(4).ObjectSize)
}

// People are not asked about a tool that cannot run, and it is not claimed.
func TestToolsThatCannotRun(t *testing.T) {
	h := newRig(t, options{inline: true})
	host := &fakeHost{lacks: fmt.Errorf("program /bin/run: no such program")}
	h.gate.Host = host
	for n, tool := range []string{"run", "auto"} {
		k := key(n)
		h.writeRequest(k, request(k, tool, ""))
		h.step(k)
		require.Equal(t, `auto_rejected: cannot_run problem="program /bin/run: no such program"`, h.outcome(k))
		require.Nil(t, h.pending(k))
		require.NotContains(t, h.history(k), event.Requested)
		require.True(t, h.isSettled(k))
	}
	_, err := h.submit(key(2), request(key(2), "run", ""), apiClient)
	require.NoError(t, err)
	require.Contains(t, h.outcome(key(2)), "cannot_run")
	require.Zero(t, h.executor.count())

	k := key(3) // no tool, nothing runs here
	h.ask(k, `{"request_id":"`+k.ID+`","action_type":"exec_cmd"}`)
	host.lacks = nil
	h.ask(key(4), request(key(4), "run", ""))
	host.lacks = store.ErrRefused
	h.decide(decision(key(4), approval.Approved))
	h.step(key(4))
	require.Equal(t, "approved", h.outcome(key(4)), "the executor reports what is gone since then")
}

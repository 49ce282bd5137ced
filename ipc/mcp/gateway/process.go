package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/procgroup"
)

const (
	endTimeout    = 2 * time.Second // for a server to end after its input has, and after a signal
	maxStderrLine = 4 << 10         // bytes
)

// inherited are the variables that every server gets; of LC_* all.
var inherited = strings.Fields(`PATH HOME LANG LANGUAGE TERM TMPDIR USER LOGNAME SHELL TZ
	XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR ` +
	`APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME USERPROFILE`) // Windows

// ours begins the names of variables that no server gets.
const ours = "PERMESSO_"

// Process is a server that is started here.
type Process struct {
	Command []string
	Env     []string // NAME, taken from our environment, or NAME=value
	Stderr  func(line string)
}

// Connect starts the server. Its environment is the inherited names and Env, nothing else.
func (p Process) Connect(context.Context) (mcp.Transport, error) {
	env, err := p.environment(os.Environ())
	if err != nil {
		return nil, err
	}
	if len(p.Command) == 0 {
		return nil, errors.New("the command is empty")
	}
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env = env
	procgroup.Own(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.copyStderr(stderr)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cmd.Process.Wait()
		procgroup.Kill(cmd) // or what it has left keeps its output open
	}()
	messages := &jsonLines{Closer: out, from: bufio.NewReaderSize(out, 64<<10), other: p.say}
	return &mcp.IOTransport{Reader: messages, Writer: &process{in, cmd, ended}, MaxLineLength: maxLine}, nil
}

// jsonLines leaves out lines that are no objects. Servers write such ones where they should not, and clients skip them.
type jsonLines struct {
	io.Closer
	from  *bufio.Reader
	other func(line []byte)

	rest   []byte // of a line that is passed on
	err    error
	within bool // a line whose beginning was read
	skip   bool // that line
}

func (l *jsonLines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		part, err := l.from.ReadSlice('\n')
		if !l.within {
			start := bytes.TrimLeft(part, " \t\r\n")
			l.skip = len(start) == 0 || start[0] != '{'
			if l.skip && len(start) > 0 {
				l.other(start)
			}
		}
		l.within = errors.Is(err, bufio.ErrBufferFull)
		if !l.within {
			l.err = err
		}
		if !l.skip {
			l.rest = part
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// say passes on a line that is no message, without hidden characters.
func (p Process) say(line []byte) {
	text := strings.TrimRight(string(line[:min(len(line), maxStderrLine)]), "\r\n")
	if text != "" && p.Stderr != nil {
		p.Stderr(show(text))
	}
}

// process ends with its standard input.
type process struct {
	io.WriteCloser
	cmd   *exec.Cmd
	ended chan struct{}
}

// Close ends the server with all that it has started: it closes its input, then asks, then kills.
func (p *process) Close() error {
	_ = p.WriteCloser.Close()
	for _, end := range []func(*exec.Cmd){procgroup.Terminate, procgroup.Kill} {
		select {
		case <-p.ended:
			return nil
		case <-time.After(endTimeout):
			end(p.cmd)
		}
	}
	<-p.ended
	return nil
}

// copyStderr passes on what the server writes beside the protocol, one line at a time.
func (p Process) copyStderr(from io.Reader) {
	r := bufio.NewReaderSize(from, maxStderrLine)
	for {
		line, err := r.ReadSlice('\n')
		p.say(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p Process) environment(all []string) ([]string, error) {
	var env []string
	for _, v := range all {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(inherited, strings.ToUpper(name)) || strings.HasPrefix(name, "LC_") {
			env = append(env, v)
		}
	}
	for _, v := range p.Env {
		name, _, given := strings.Cut(v, "=")
		switch {
		case name == "":
			return nil, fmt.Errorf("--env %.60q has no name: write NAME or NAME=value", v)
		case strings.HasPrefix(strings.ToUpper(name), ours):
			return nil, fmt.Errorf("--env %.60q: variables %s… are never given to a server", name, ours)
		case given:
			env = append(env, v)
		default:
			if value, has := os.LookupEnv(name); has {
				env = append(env, name+"="+value)
			}
		}
	}
	return env, nil
}

// Identity is what is pinned: the command, its arguments, and the names of the variables beside the inherited ones.
func (p Process) Identity() approval.Raw {
	names := []string{}
	for _, v := range p.Env {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	b, err := json.Marshal(struct {
		Command []string `json:"command"`
		Env     []string `json:"environment"`
	}{p.Command, slices.Compact(names)})
	if err != nil { // a command that is not UTF-8
		return quote(fmt.Sprintf("%q %q", p.Command, names))
	}
	return b
}

// Remote connects to a server over streamable HTTP. oauth gets its tokens; nil: none.
func Remote(address string, client *http.Client, oauth auth.OAuthHandler) (func(context.Context) (mcp.Transport, error), error) {
	if _, err := origin(address); err != nil {
		return nil, err
	}
	return func(context.Context) (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: client, OAuthHandler: oauth, MaxEventSize: maxLine}, nil
	}, nil
}

// RemoteIdentity is what is pinned of a remote server: scheme and host.
func RemoteIdentity(address string) (approval.Raw, error) {
	u, err := origin(address)
	if err != nil {
		return nil, err
	}
	return approval.Raw(`{"origin":` + string(quote(u.Scheme+"://"+u.Host)) + `}`), nil
}

func origin(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("--url %.200q is no URL of http or https", address)
	}
	if u.User != nil {
		return nil, errors.New("--url holds a user or a password; give credentials another way")
	}
	return u, nil
}

// runners start the program that their first argument names, besides those of theirs.
var runners = map[string][]string{
	"npx": nil, "bunx": nil, "uvx": nil, "node": nil, "python": {"-m"}, "python3": {"-m"}, "pipx": {"run"}, "bun": {"run", "x"},
	"pnpm": {"dlx", "exec"}, "yarn": {"dlx"}, "npm": {"exec"}, "deno": {"run"}, "uv": {"run", "tool"}, "go": {"run"},
}

// NameAs is the name of a server that someone calls so. One that cannot be a name as it is gets an end by which it differs
// from others that would become the same.
func NameAs(given string) string {
	name := NameOf([]string{given}, "")
	if name == given {
		return name
	}
	end := "-" + approval.Digest([]byte(given))[:6]
	return strings.TrimRight(name[:min(len(name), maxServer-len(end))], "-") + end
}

// NameOf derives a server's name from its command, or from its URL.
func NameOf(command []string, address string) string {
	name := ""
	if u, err := url.Parse(address); err == nil && address != "" {
		name = u.Hostname()
	} else if len(command) > 0 {
		name = programOf(command)
		for _, end := range []string{".exe", ".mjs", ".cjs", ".js", ".ts", ".py", ".sh"} {
			name = strings.TrimSuffix(name, end)
		}
	}
	name = strings.Trim(strings.Map(func(r rune) rune {
		if validServer(string(r)) {
			return r
		}
		return '-'
	}, name), "-")
	name = strings.Trim(name[:min(len(name), maxServer)], "-")
	if name == "" {
		return "server"
	}
	return name
}

func programOf(command []string) string {
	first := filepath.Base(command[0])
	skip, runs := runners[strings.TrimSuffix(strings.ToLower(first), ".exe")]
	if !runs {
		return first
	}
	for _, arg := range command[1:] {
		if strings.HasPrefix(arg, "-") || slices.Contains(skip, arg) {
			continue
		}
		arg = path.Base(filepath.ToSlash(arg)) // without a scope
		if at := strings.LastIndexByte(arg, '@'); at > 0 {
			arg = arg[:at] // nor a version
		}
		return arg
	}
	return first
}

package botapi

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The lock pins every package with its checksum.
//
//go:embed npm/package.json npm/package-lock.json
var lock embed.FS

const (
	startTimeout  = 30 * time.Second
	startAttempts = 3
	idlePause     = 20 * time.Millisecond // after a poll without updates
)

// serve starts the server at the given port, and ends with its standard input, so that it does not outlive a
// killed test.
const serve = `
const TelegramServer = require('telegram-test-api');
const server = new TelegramServer({port: Number(process.argv[1]), host: '127.0.0.1', storeTimeout: 3600});
server.start().then(() => console.log('ready'), (err) => { console.error(String(err)); process.exit(1); });
process.stdin.on('end', () => process.exit(0)).resume();
`

// ThirdParty is a telegram-test-api process.
type ThirdParty struct {
	URL   string // what bot.WithServerURL takes
	Token string // any token works; this is a Server's
}

// StartThirdParty installs telegram-test-api into the user's cache, if needed, and runs it until the end of the
// test. If that fails, the test fails: a channel tested only against our own fake could share its mistakes.
func StartThirdParty(t testing.TB) *ThirdParty {
	t.Helper()
	files, err := fs.Sub(lock, "npm")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := Install(t.Context(), "telegram-test-api", files)
	if err != nil {
		t.Fatalf("install telegram-test-api: %v: npm and its registry are required: run make deps, then npm ci in chat/telegram/botapi/npm to see the error", err)
	}
	for range startAttempts {
		var f *ThirdParty
		if f, err = start(t, dir); err == nil {
			return f
		}
	}
	t.Fatalf("start telegram-test-api: %v: Node 14 or later is required (make deps); if %s is damaged, remove it to install again", err, dir)
	return nil
}

// start runs the server at a free port.
func start(t testing.TB, dir string) (*ThirdParty, error) {
	port, err := freePort(t.Context())
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), "node", "-e", serve, strconv.Itoa(port))
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	timer := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		stop()
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	t.Cleanup(stop)
	return &ThirdParty{URL: "http://127.0.0.1:" + strconv.Itoa(port), Token: Token}, nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Say makes a user write to a chat.
func (f *ThirdParty) Say(ctx context.Context, from User, chat Chat, text string) error {
	return f.callTestAPI(ctx, "sendMessage", map[string]any{
		"botToken": f.Token, "from": from, "chat": chat, "text": text, "date": time.Now().Unix(),
	}, nil)
}

// Tap makes a user tap a button of a message.
func (f *ThirdParty) Tap(ctx context.Context, from User, m Message, data string) error {
	m.Date = max(m.Date, 1) // 0 means an inaccessible message
	return f.callTestAPI(ctx, "sendCallback", map[string]any{
		"botToken": f.Token, "from": from, "message": m, "data": data, "date": time.Now().Unix(),
	}, nil)
}

// FromBot returns the bot's messages in a chat, in their current form, oldest first.
func (f *ThirdParty) FromBot(ctx context.Context, chat int64) ([]Message, error) {
	var history []struct {
		ID      int `json:"messageId"`
		Message struct {
			Chat     any       `json:"chat_id"`
			Text     string    `json:"text"`
			Entities []Entity  `json:"entities"`
			Keyboard *Keyboard `json:"reply_markup"`
		} `json:"message"`
	}
	if err := f.callTestAPI(ctx, "getUpdatesHistory", map[string]any{"token": f.Token}, &history); err != nil {
		return nil, err
	}
	var found []Message
	for _, entry := range history {
		m := entry.Message
		if fmt.Sprint(m.Chat) == strconv.FormatInt(chat, 10) {
			found = append(found, Message{ID: entry.ID, Text: m.Text, Entities: m.Entities, Keyboard: m.Keyboard})
		}
	}
	return found, nil
}

// callTestAPI calls the server's interface for tests.
func (f *ThirdParty) callTestAPI(ctx context.Context, path string, body, result any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL+"/"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		OK     bool
		Result json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || !answer.OK {
		return fmt.Errorf("telegram-test-api: %s: HTTP %s: %w", path, resp.Status, err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// JSONClient is the HTTP client that go-telegram/bot needs for telegram-test-api: it turns forms into JSON, and
// delays after an empty getUpdates, which that server answers at once.
type JSONClient struct{}

// verbatimParams are sent as strings, even if they look like JSON.
var verbatimParams = " text caption callback_query_id url secret_token language_code parse_mode "

// Do implements bot.HttpClient.
func (*JSONClient) Do(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	if req.Body != nil {
		defer req.Body.Close()
		body, err := jsonOf(req)
		if err != nil {
			return nil, err
		}
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		out.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(out) //nolint:gosec // G704: where to is what the test says
	if err == nil && strings.HasSuffix(req.URL.Path, "/getUpdates") && resp.ContentLength == int64(len(`{"ok":true,"result":[]}`)) {
		sleep(req.Context(), idlePause)
	}
	return resp, err
}

// jsonOf turns a form into an object. JSON values stay JSON; files are left out.
func jsonOf(req *http.Request) ([]byte, error) {
	in := req.Clone(req.Context())
	in.Body = io.NopCloser(io.LimitReader(req.Body, maxFile))
	//nolint:gosec // G120: the form is what a test sent, and no longer than maxFile
	if err := in.ParseMultipartForm(maxBody); err != nil && !errors.Is(err, http.ErrNotMultipart) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	object := map[string]any{}
	for name, values := range in.PostForm {
		object[name] = values[0]
		if !strings.Contains(verbatimParams, " "+name+" ") && json.Valid([]byte(values[0])) {
			object[name] = json.RawMessage(values[0])
		}
	}
	return json.Marshal(object)
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/mcp/mcptest"
	"github.com/permesso-dev/permesso/watcher"
)

// liveGroup is a configuration that is edited once while a daemon serves. In its
// text «a¦b» is a before the edit and b after it.
type liveGroup struct {
	name, text string
	checks     []liveCheck
	smtp       string // address of the mail server
	smtp2      string // of another
	api2       string // URL of another Telegram
	hooks      [2]string
	web        string // URL of a web server
	webTLS     string
}

// liveCheck sees at an entrance that the values of keys are obeyed.
type liveCheck struct {
	key      string // row of the table
	entrance string
	see      func(l *live) string
	want     [2]string // part of what is seen, before the edit and after it
}

// live is a daemon with a local socket, the HTTP API and a fake Telegram.
type live struct {
	*rig
	d      *daemonProcess
	api    *botapi.Server
	other  *botapi.Server // of the operator's own
	socket string
	rest   string // URL of the HTTP API
	keys   map[string]*restClient
	mails  *mailSink
	text   string // the configuration

	group    *testing.T
	hooks    [2]string              // addresses for updates
	version  int                    // of the configuration: 0 or 1
	byHTTP   bool                   // requests are submitted with a key
	kept     map[string]string      // requests that wait for the edit, by workspace
	browsers map[string]*pageClient // by socket and user
	replies  int
}

// TestLiveKeys edits every live key of the configuration while a daemon serves, and sees
// the edit at every entrance where the key counts.
func TestLiveKeys(t *testing.T) {
	t.Parallel()
	groups := liveGroups()
	for _, g := range groups {
		g.requireEdits(t)
	}
	require.Empty(t, missingChecks(groups))
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.run(t)
		})
	}
}

var alternatives = regexp.MustCompile(`(?s)«(.*?)¦(.*?)»`)

// version is the text before (0) or after (1) the edit.
func (g *liveGroup) version(i int) string {
	return alternatives.ReplaceAllString(g.text, fmt.Sprintf("${%d}", i+1))
}

// requireEdits requires that the group edits each key that it checks.
func (g *liveGroup) requireEdits(t *testing.T) {
	t.Helper()
	var values [2]map[string]string
	for i := range values {
		dir := t.TempDir() // for files that the configuration names
		g.smtp, g.smtp2, g.api2, g.hooks = "127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:2", [2]string{"127.0.0.1:3", "127.0.0.1:4"}
		c, err := config.Reader{CheckHandler: exec.Check}.Parse(g.name, []byte(g.fill(g.version(i), "http://127.0.0.1:1", dir)))
		require.NoError(t, err, g.name)
		values[i] = map[string]string{}
		for _, s := range c.Settings {
			values[i][s.Key] = s.Text()
		}
	}
	keys := slices.Concat(slices.Collect(maps.Keys(values[0])), slices.Collect(maps.Keys(values[1])))
	keys = slices.DeleteFunc(keys, func(k string) bool { return values[0][k] == values[1][k] })
	var rows []string
	for _, r := range config.Rows() {
		pattern := regexp.QuoteMeta(r.Path)
		pattern = strings.ReplaceAll(pattern, `\[\]`, `\[\d+\]`)
		pattern = regexp.MustCompile(`\b[A-Z]+\b`).ReplaceAllString(pattern, `[^.]+`)
		switch {
		case strings.HasSuffix(r.Path, ".TOOL"):
			pattern += `\..+`
		case r.Keys != nil:
			pattern += `(\[1\]\..*)?`
		}
		if slices.ContainsFunc(keys, regexp.MustCompile("^"+pattern+"$").MatchString) {
			rows = append(rows, r.Path)
		}
	}
	for _, c := range g.checks {
		require.Contains(t, rows, c.key, "%s does not edit it", g.name)
	}
}

// fill sets the places of a group's text.
func (g *liveGroup) fill(text, server, dir string) string {
	// Both versions of a key may name these files.
	for name, key := range map[string]string{"lab.pub": labKey, "other.pub": otherKey, "token2": "1:other", "hook": hookSecret, "hook2": "other-" + hookSecret} {
		_ = os.WriteFile(filepath.Join(dir, name), []byte(key+"\n"), 0o600)
	}
	return strings.NewReplacer("MYSELF", fmt.Sprint(os.Getuid()), "AGENT", fmt.Sprint(agentUID()), "DIR", dir, "SERVER", server, "SMTP", g.smtp, "SMTQ", g.smtp2, "OTHERAPI", g.api2, "HOOKA", g.hooks[0], "HOOKB", g.hooks[1], "WEBS", cmp.Or(g.webTLS, "https://127.0.0.1:1"), "WEB", cmp.Or(g.web, "http://127.0.0.1:1")).Replace(text)
}

func (g *liveGroup) run(t *testing.T) {
	l := &live{rig: newRig(t, "default", ""), api: botapi.Start(t), mails: newMailSink(t), keys: map[string]*restClient{}, group: t, kept: map[string]string{}, browsers: map[string]*pageClient{}}
	g.smtp, g.smtp2 = l.mails.address, l.mails.listen(t, "second ")
	l.other = botapi.Start(t)
	l.hooks = [2]string{freeAddress(t), freeAddress(t)}
	g.api2, g.hooks = l.other.URL, l.hooks
	dir, err := os.MkdirTemp("", "permesso-live-") // short: the path of a socket is limited
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	l.socket = filepath.Join(dir, "p.sock")
	for _, user := range []int64{1001, 1002, 1003} {
		for _, api := range []*botapi.Server{l.api, l.other} {
			api.AddUser(botapi.User{ID: user, FirstName: "A"})
			api.Say(user, user, "/start")
		}
	}
	for _, folder := range []string{"inbox", "inbox2"} {
		for _, part := range []string{"new", "cur", "tmp"} {
			require.NoError(t, os.MkdirAll(filepath.Join(l.dir, folder, part), 0o700))
		}
	}
	for chat := int64(-1001); chat > -1010; chat-- {
		l.api.AddChat(botapi.Chat{ID: chat, Type: botapi.Supergroup, Title: "Family", IsForum: true})
		l.api.AddTopic(chat, "one")
		l.api.AddTopic(chat, "two")
	}
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "token"), []byte(botapi.Token+"\n"), 0o600))
	g.web, g.webTLS = newWeb(t, l.dir)
	head := fmt.Sprintf("listen = \"127.0.0.1:0\"\nui = \"127.0.0.1:0\"\nsocket = %q\n", l.socket)
	for i := range 2 {
		text := head + g.fill(g.version(i), l.api.URL, l.dir)
		l.text, l.version = text, i
		if i == 0 {
			require.NoError(t, os.WriteFile(l.config, []byte(text), 0o600))
			l.d = l.serve("TZ=UTC", "LIVE=1")
			l.d.awaitLog(`"serving"`)
			l.d.awaitLog("HTTP API listening")
			l.d.awaitLog("web UI listening")
			l.rest = "http://" + listenPattern.FindStringSubmatch(l.d.logged())[1]
		} else {
			l.edit(text)
		}
		for _, c := range g.withEntrances() {
			name := c.key + " at " + c.entrance
			seen := c.see(l)
			require.Contains(t, seen, c.want[i], "%s, version %d", name, i)
		}
	}
	l.d.stop()
}

// edit replaces the configuration and waits until the daemon has applied it.
func (l *live) edit(text string) {
	l.t.Helper()
	l.replaceConfig(text)
	l.awaitHealth(`"config_sha256":"` + approval.Digest([]byte(text)))
}

func (l *live) awaitHealth(text string) {
	l.t.Helper()
	await(l.t, l.layout.Health(), func() bool {
		b, err := os.ReadFile(l.layout.Health())
		return err == nil && strings.Contains(strings.ReplaceAll(string(b), " ", ""), text)
	})
}

func (l *live) files(ws string) client.Files {
	return client.Files{Requests: l.layout.Requests(ws), Responses: l.layout.Responses(ws)}
}

// submit writes a request file of a workspace, or submits with a key. refused is what
// the HTTP API answers to what is refused in a response to a file.
func (l *live) submit(ws, body string) (id, refused string) {
	l.t.Helper()
	if l.byHTTP {
		return l.submitByHTTP(ws, body)
	}
	id = client.NewID()
	awaitFile(l.t, l.layout.Requests(ws))
	require.NoError(l.t, l.files(ws).Submit(id, []byte(strings.Replace(body, "{", `{"request_id":"`+id+`",`, 1))))
	return id, ""
}

func (l *live) submitByHTTP(ws, body string) (id, refused string) {
	status, a := l.key(ws, "").do("POST", "/v1/approvals", body)
	switch status {
	case http.StatusCreated:
		return strings.TrimPrefix(a["approval_id"].(string), "appr_"), ""
	case http.StatusTooManyRequests:
		return "", "auto_rejected"
	}
	return "", fmt.Sprintf("status %d %v", status, a)
}

// ruled submits a request and returns the status of its response, or "pending".
func (l *live) ruled(ws, body string) (id, status string) {
	l.t.Helper()
	id, status = l.submit(ws, body)
	if status != "" {
		return id, status
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	found := make(chan string, 2)
	go func() {
		if r, err := l.files(ws).Await(ctx, client.Submitted{ID: id}); err == nil {
			found <- string(r.Status)
		}
	}()
	go func() {
		file := filepath.Join(l.layout.Pendings(ws), id+".json")
		if watcher.Await(ctx, file, func() (bool, error) { _, err := os.Lstat(file); return err == nil, nil }) == nil {
			found <- "pending"
		}
	}()
	select {
	case status = <-found:
	case <-ctx.Done():
		require.Fail(l.t, "no ruling", "%s in %s: %s", body, ws, l.d.logged())
	}
	if status != "pending" {
		return id, status
	}
	if r, err := os.ReadFile(filepath.Join(l.layout.Responses(ws), id+".json")); err == nil && len(r) > 0 {
		status = string(l.responseIn(ws, id).Status) // a claim may pass through pending
	}
	return id, status
}

func (l *live) responseIn(ws, id string) *approval.Response {
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	r, err := l.files(ws).Await(ctx, client.Submitted{ID: id})
	require.NoError(l.t, err)
	return r
}

// ruling sees how a request is ruled at once.
func ruling(ws, body string) func(*live) string {
	return func(l *live) string { _, status := l.ruled(ws, body); return status }
}

// afterRuling first submits other requests.
func afterRuling(ws string, before []string, body string) func(*live) string {
	return func(l *live) string {
		for _, b := range before {
			l.ruled(ws, b)
		}
		_, status := l.ruled(ws, body)
		return status
	}
}

// document sees the pending or the record of a request.
func document(ws, body string) func(*live) string {
	return func(l *live) string {
		id, status := l.ruled(ws, body)
		dir := l.layout.Records(ws)
		if status == "pending" {
			dir = l.layout.Pendings(ws)
		}
		b, err := os.ReadFile(filepath.Join(dir, id+".json"))
		require.NoError(l.t, err, status)
		return string(b)
	}
}

// key is a key of an agent, or of an approver who decides.
func (l *live) key(ws, owner string) *restClient {
	l.t.Helper()
	if l.keys[ws+" "+owner] == nil {
		scopes := []string{apikey.MayRequest}
		if owner != "" {
			scopes = []string{apikey.MayDecide, apikey.MayRead}
		}
		body, err := json.Marshal(map[string]any{"workspace": ws, "scopes": scopes, "owner": owner})
		require.NoError(l.t, err)
		status, b := l.atUnix(l.layout.Socket(), "POST", "/keys", string(body))
		require.Equal(l.t, http.StatusOK, status, "%s", b)
		var k struct{ Secret string }
		require.NoError(l.t, json.Unmarshal(b, &k))
		l.keys[ws+" "+owner] = &restClient{l.rig, l.rest, k.Secret}
	}
	return l.keys[ws+" "+owner]
}

// bySocket runs a command of a user who cannot read the home.
func (l *live) bySocket(args ...string) string {
	cmd := osexec.Command(program(l.t, true), withSeen(l.layout, args)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "TZ=UTC", "HOME=" + filepath.Join(l.dir, "nowhere"), "PERMESSO_SOCKET=" + l.socket}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // an exit code other than 0 says why in its output
	return out.String()
}

const sayRequest = `{"tool_name":"say"}`

var startBefore = regexp.MustCompile(`must start before (\d\d:\d\d:\d\d)`)

// margin rounds how much time there is until a time of day in text.
func (l *live) margin(text string) string {
	found := startBefore.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	at, err := time.Parse(time.TimeOnly, found[1])
	require.NoError(l.t, err)
	now, _ := time.Parse(time.TimeOnly, time.Now().UTC().Format(time.TimeOnly))
	left := (at.Sub(now) + 24*time.Hour) % (24 * time.Hour) // it may be tomorrow
	return "approved for " + left.Round(time.Minute).String()
}

// approveIn approves as the operator.
func approveIn(ws string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		cmd := l.command("approve", ws+"/"+id)
		cmd.Env = append(cmd.Env, "TZ=UTC")
		out, _ := cmd.CombinedOutput() // an exit code other than 0 says why
		return l.margin(string(out))
	}
}

// agentUID is a UID with which this test can run a command in the home. Root cannot
// be an agent, but can run one as another real user.
func agentUID() int {
	if os.Getuid() == 0 {
		return uidAgent
	}
	return os.Getuid()
}

func approveAsAgent(l *live) string {
	id, _ := l.ruled("default", sayRequest)
	cmd := l.command("approve", id)
	if os.Getuid() == 0 {
		cmd = osexec.Command("setpriv", append([]string{"--ruid", fmt.Sprint(uidAgent)}, cmd.Args...)...)
	}
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, _ := cmd.CombinedOutput() // an exit code other than 0 says why
	return l.margin(string(out))
}

// meBySocket approves as the user of this test, who cannot read the home.
func meBySocket(ws string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		return l.margin(l.bySocket("approve", ws+"/"+id))
	}
}

func annByHTTP(ws string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		ann := l.key(ws, "ann")
		status, a := ann.do("POST", "/v1/approvals/appr_"+id+"/decision", `{"code":"1"}`)
		if status != 200 {
			return fmt.Sprintf("%d %v", status, a)
		}
		until, err := time.Parse(time.RFC3339, a["run_before"].(string))
		require.NoError(l.t, err)
		return "approved for " + time.Until(until).Round(time.Minute).String()
	}
}

// annByTelegram sees by when an action starts that ann approves with a button.
func annByTelegram(ws string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		l.tap(1001, id)
		return l.approvedFor(ws, id)
	}
}

// tap approves a request in a user's private chat.
func (l *live) tap(user int64, id string) string { return l.tapAs(user, user, id) }

func (l *live) tapAs(user, chat int64, id string) string {
	l.t.Helper()
	m := l.card(chat, id)
	tap, err := l.api.Tap(user, chat, m.ID, m.Buttons()[0])
	require.NoError(l.t, err)
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	a, err := tap.Answer(ctx)
	require.NoError(l.t, err)
	return a.Text
}

// card waits for the card of a request in a chat.
func (l *live) card(chat int64, id string) (found botapi.Message) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	require.NoError(l.t, l.api.Await(ctx, func(s botapi.State) bool {
		for _, m := range s.FromBot(chat) {
			if strings.Contains(m.Text, approval.ShortID(id)) && strings.Contains(strings.Join(m.Buttons(), " "), "✅") {
				found = m
				return true
			}
		}
		return false
	}), "no card in %d: %s", chat, l.d.logged())
	return found
}

// telegramCard sees a request's card in a chat.
func telegramCard(ws string, chat int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		m := l.card(chat, id)
		return fmt.Sprintf("silent %t thread %d %s", m.Silent, m.ThreadID, m.Text)
	}
}

// waits sees how long a request waits for a decision.
func waits(ws, body string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, body)
		b, err := os.ReadFile(filepath.Join(l.layout.Pendings(ws), id+".json"))
		require.NoError(l.t, err)
		return waiting(l.t, b)
	}
}

// pendingMember sees one member of a pending.
func pendingMember(ws, name string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		b, err := os.ReadFile(filepath.Join(l.layout.Pendings(ws), id+".json"))
		require.NoError(l.t, err)
		fields, err := codec.Fields(b)
		require.NoError(l.t, err)
		for _, f := range fields {
			if f.Name == name {
				return string(f.Value)
			}
		}
		return "none"
	}
}

func waiting(t testing.TB, pending []byte) string {
	var p struct {
		Timestamp time.Time `json:"timestamp"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	require.NoError(t, json.Unmarshal(pending, &p))
	return "waits " + p.ExpiresAt.Sub(p.Timestamp).String()
}

// result sees what a request's handler did.
func result(ws, body string) func(*live) string {
	return func(l *live) string {
		id, refused := l.submit(ws, body)
		require.Empty(l.t, refused)
		r := l.responseIn(ws, id)
		if r.Error != nil {
			return string(r.Status) + " " + *r.Error
		}
		return string(r.Status) + " " + string(r.Result)
	}
}

// tapIn approves in the private chat of bob, whose id changes.
func tapIn(ws string, ids ...int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		user := l.whereIs(ids, id)
		return fmt.Sprintf("from %d: %s", user, l.tap(user, id))
	}
}

// whereIs returns the chat in which a request's card is.
func (l *live) whereIs(chats []int64, id string) (chat int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), testTimeout)
	defer cancel()
	require.NoError(l.t, l.api.Await(ctx, func(s botapi.State) bool {
		for _, chat = range chats {
			if slices.ContainsFunc(s.FromBot(chat), func(m botapi.Message) bool { return strings.Contains(m.Text, approval.ShortID(id)) }) {
				return true
			}
		}
		return false
	}))
	return chat
}

func cardIn(ws string, chats ...int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		return fmt.Sprintf("in %d", l.whereIs(chats, id))
	}
}

func privateCard(ws string, ids ...int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		return l.card(l.whereIs(ids, id), id).Text
	}
}

// cardOrNone sees whether there is a card when that of a later request in another
// workspace has arrived.
func cardOrNone(ws string, chat int64, other string, otherChat int64) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, sayRequest)
		later, _ := l.ruled(other, sayRequest)
		l.card(otherChat, later) // before that, the record of the earlier one's card was written
		if _, err := os.Stat(filepath.Join(l.layout.Sent("telegram", ws), id+".json")); err != nil {
			return "none"
		}
		l.card(chat, id)
		return "a card"
	}
}

// rulingByHTTP sees how a request by HTTP is ruled.
func rulingByHTTP(ws, body string) func(*live) string {
	return func(l *live) string {
		agent := l.key(ws, "")
		status, a := agent.do("POST", "/v1/approvals", body)
		if status == 201 && a["status"] != "pending" {
			_, a = agent.do("GET", "/v1/approvals/"+a["approval_id"].(string)+"?wait=30", "")
		}
		b, err := json.Marshal(a)
		require.NoError(l.t, err)
		return fmt.Sprintf("%d %s", status, b)
	}
}

func waitsByHTTP(ws string, members ...string) func(*live) string {
	return func(l *live) string {
		_, a := l.key(ws, "").do("POST", "/v1/approvals", "{"+strings.Join(append(members, `"tool_name":"say"`), ",")+"}")
		id, ok := a["approval_id"].(string)
		require.True(l.t, ok, "%v", a)
		b, err := os.ReadFile(filepath.Join(l.layout.Pendings(ws), strings.TrimPrefix(id, "appr_")+".json"))
		require.NoError(l.t, err)
		return waiting(l.t, b)
	}
}

// acceptsAPublicSource sees whether the daemon accepts a tool that reads public
// sources.
func acceptsAPublicSource(l *live) string {
	before := l.text
	text := strings.Replace(before, "[tools.write]\n", "[tools.leak]\ncapability = \"network:http\"\n[tools.write]\n", 1)
	l.replaceConfig(text)
	result := ""
	await(l.t, l.d.log, func() bool {
		b, _ := os.ReadFile(l.layout.Health())
		if strings.Contains(l.d.logged(), "which admin workspace") {
			result = "refused"
		} else if strings.Contains(string(b), approval.Digest([]byte(text))) {
			result = "accepted"
		}
		return result != ""
	})
	l.edit(before)
	return result
}

// twoAtOnce sees how two slow actions run.
func twoAtOnce(l *live) string {
	slow, done := filepath.Join(l.dir, "slow"), filepath.Join(l.dir, "go")
	for _, file := range []string{slow, done} {
		_ = os.Remove(file) // of the other version
	}
	lines := func() string { b, _ := os.ReadFile(slow); return strings.Join(strings.Fields(string(b)), " ") }
	first, _ := l.submit("running", `{"tool_name":"slow"}`)
	second, _ := l.submit("running", `{"tool_name":"slow"}`)
	begun := "begin"
	if strings.Contains(l.text, "limits = { running = 2 }") {
		begun = "begin begin"
	}
	await(l.t, slow, func() bool { return lines() == begun })
	require.NoError(l.t, os.WriteFile(done, nil, 0o600))
	l.responseIn("running", first)
	l.responseIn("running", second)
	return lines()
}

// changedLog sees what the daemon logs when the configuration changes.
func changedLog(l *live) string {
	before := len(l.d.logged())
	for range 2 { // the line about the first is there when the second is applied
		l.text += "# again\n"
		l.edit(l.text)
	}
	return "logged: " + l.d.logged()[before:]
}

// newWeb starts web servers that say what they got. DIR/ca.pem is the authority of
// the one with TLS.
func newWeb(t *testing.T, dir string) (plain, tls string) {
	server := mcptest.Handler(mcptest.Files(dir))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			if r.Header.Get("X-Live") == "second" || r.Header.Get("X-Secret") == otherKey {
				http.Error(w, "refused", http.StatusForbidden)
				return
			}
			server.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		secret := ""
		switch r.Header.Get("X-Secret") {
		case labKey:
			secret = "the secret of lab"
		case otherKey:
			secret = "the secret of other"
		}
		fmt.Fprintf(w, "%s %s live %s %s body %s.", r.Method, r.URL.Path, r.Header.Get("X-Live"), secret, strings.ReplaceAll(string(body), `"`, ""))
	})
	a, b := httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	return a.URL, b.URL
}

// mailSink is a mail server that keeps every mail.
type mailSink struct {
	address string
	mu      sync.Mutex
	got     []string
	arrived chan struct{}
}

func newMailSink(t *testing.T) *mailSink {
	m := &mailSink{arrived: make(chan struct{}, 1000)}
	m.address = m.listen(t, "")
	return m
}

// listen starts a server. The mails that it takes begin with its name.
func (m *mailSink) listen(t *testing.T, name string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{sink: m, server: name}, nil }))
	go func() { _ = s.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// freeAddress is a loopback address at which nothing listens.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

type mailSession struct {
	sink   *mailSink
	server string
	to     string
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to += " <" + to + ">"
	return nil
}
func (s *mailSession) Reset()        { s.to = "" }
func (s *mailSession) Logout() error { return nil }
func (s *mailSession) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	s.sink.mu.Lock()
	s.sink.got = append(s.sink.got, s.server+"to"+s.to+"\n"+string(b))
	s.sink.mu.Unlock()
	s.sink.arrived <- struct{}{}
	return err
}

// mailOf sees the mail about a request.
func mailOf(ws, body string) func(*live) string {
	return func(l *live) string {
		id, _ := l.ruled(ws, body)
		return strings.ReplaceAll(l.awaitMail(id), "=\r\n", "")
	}
}

// awaitMail waits for the mail about a request.
func (l *live) awaitMail(id string) string {
	l.t.Helper()
	for {
		l.mails.mu.Lock()
		at := slices.IndexFunc(l.mails.got, func(m string) bool { return strings.Contains(subjectOf(m), "[appr_"+id) })
		m := ""
		if at >= 0 {
			m = l.mails.got[at]
		}
		l.mails.mu.Unlock()
		if at >= 0 {
			return m
		}
		select {
		case <-l.mails.arrived:
		case <-time.After(testTimeout):
			require.Fail(l.t, "no mail", l.d.logged())
		}
	}
}

// mayApprove sees whether a mail says that its reader cannot approve by email.
func mayApprove(mail func(*live) string) func(*live) string {
	return func(l *live) string {
		if strings.Contains(strings.Join(strings.Fields(mail(l)), " "), "cannot approve this by email") {
			return "limited"
		}
		return "may approve"
	}
}

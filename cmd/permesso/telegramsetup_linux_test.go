package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// The people of these tests, by their ids at Telegram.
const (
	tgAnn, tgBob, tgEve int64 = 1001, 1002, 6666
	tgFamily            int64 = -1001000000001
	tgForum             int64 = -1001000000002
)

// secretHalf is what must stand nowhere.
const secretHalf = "strict-fake-and-nobodys-token"

// newTelegram is a strict Telegram with some people and groups.
func newTelegram(t testing.TB) *botapi.Server {
	t.Helper()
	api := &botapi.Server{Privacy: true, ConflictPause: 10 * time.Millisecond, Local: true}
	require.NoError(t, api.Listen())
	t.Cleanup(api.Close)
	for id, name := range map[int64]string{tgAnn: "Ann", tgBob: "Bob", tgEve: "Eve"} {
		api.AddUser(botapi.User{ID: id, FirstName: name, Username: strings.ToLower(name)})
	}
	api.AddChat(botapi.Chat{ID: tgFamily, Type: botapi.Supergroup, Title: "Family\u202e"})
	api.AddChat(botapi.Chat{ID: tgForum, Type: botapi.Supergroup, Title: "Forum", IsForum: true})
	return api
}

// setupRun is one telegram setup in this process, with no terminal.
type setupRun struct {
	t    *testing.T
	api  *botapi.Server
	dir  string
	env  map[string]string
	said *demoRun // what it prints, of both kinds
	out  bytes.Buffer
	code chan int
}

const setupConfig = `# mine
[workspaces.default]             # the first
autonomy = "supervised"
approvers = ["ann"]

[approvers.ann]
local = 1000                     # id -u ann
`

func newSetup(t *testing.T, text string) *setupRun {
	t.Helper()
	r := &setupRun{t: t, api: newTelegram(t), dir: t.TempDir(), code: make(chan int, 1)}
	r.env = map[string]string{
		"PERMESSO_CONFIG": filepath.Join(r.dir, "permesso.toml"), "PERMESSO_HOME": filepath.Join(r.dir, "home"),
		telegramToken: botapi.Token, telegramServer: r.api.URL,
	}
	if text != "" {
		require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
	}
	return r
}

// begin runs it.
func (r *setupRun) begin(args ...string) {
	r.t.Helper()
	r.said = newDemo(r.t)
	r.out.Reset()
	m := Main{In: strings.NewReader(""), Out: r.said, Err: r.said, Env: func(name string) string { return r.env[name] }}
	for _, a := range args {
		if a == "--json" {
			m.Out = &r.out
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		r.code <- m.Run(ctx, append([]string{"telegram", "setup"}, args...))
	}()
}

// ends is the exit code, and demands that nothing of the token was said.
func (r *setupRun) ends() int {
	r.t.Helper()
	select {
	case code := <-r.code:
		require.NotContains(r.t, r.said.said()+r.out.String(), secretHalf)
		return code
	case <-time.After(patience):
		require.Fail(r.t, "it does not end", "%s", r.said.said())
		return 0
	}
}

var numberPattern = regexp.MustCompile(`/start (\d{6})\n`)

// number awaits the number that is to be written.
func (r *setupRun) number() string { return numberOf(r.said) }

func numberOf(d *demoRun) string {
	d.t.Helper()
	d.awaits("waiting for /start")
	found := numberPattern.FindStringSubmatch(strings.ReplaceAll(d.said(), "\r", ""))
	require.NotNil(d.t, found, d.said())
	return found[1]
}

// tapsTestCard awaits the test card in a chat and touches it.
func tapsTestCard(t testing.TB, api *botapi.Server, user, chat int64) {
	t.Helper()
	m := awaitMessage(t, api, chat, "🔐 Test card", "✅ It works")
	tap, err := api.Tap(user, chat, m.ID, "✅ It works")
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	answer, err := tap.Answer(ctx)
	require.NoError(t, err)
	require.Equal(t, "Your tap got through.", answer.Text)
}

// awaitMessage awaits a message of the bot's that begins so and has that button; "": whatever it has.
func awaitMessage(t testing.TB, api *botapi.Server, chat int64, begins, button string) (found botapi.Message) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	err := api.Await(ctx, func(s botapi.State) bool {
		for _, m := range s.FromBot(chat) {
			if _, ok := m.Button(button); strings.HasPrefix(m.Text, begins) && (ok || button == "") {
				found = m
				return true
			}
		}
		return false
	})
	require.NoError(t, err, "%s in %d: %+v", begins, chat, api.State().FromBot(chat))
	return found
}

func (r *setupRun) config() string {
	r.t.Helper()
	b, err := os.ReadFile(r.env["PERMESSO_CONFIG"])
	require.NoError(r.t, err)
	return string(b)
}

func (r *setupRun) tokenFile() string { return filepath.Join(r.dir, "telegram.token") }

// holdsToken demands that a file holds the token and is nobody else's.
func holdsToken(t testing.TB, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, botapi.Token+"\n", string(b))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestTelegramSetup(t *testing.T) {
	r := newSetup(t, setupConfig)
	r.begin()
	number := r.number()
	require.Contains(t, r.said.said(), "bot     @permesso_bot\n")
	require.Contains(t, r.said.said(), "open https://t.me/permesso_bot?start="+number+", or write to @permesso_bot:  /start "+number+"\n")
	r.api.Say(tgAnn, tgAnn, "/start "+number)
	tapsTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.said.said(), "saw     Ann (@ann), id 1001, in private\n")
	require.Contains(t, r.said.said(), "hint: start the daemon: permesso serve, or permesso service install\n")
	holdsToken(t, r.tokenFile())
	require.Equal(t, strings.NewReplacer(
		"approvers = [\"ann\"]\n", "approvers = [\"ann\"]\nchannels = [\"telegram\"]\n",
		"# id -u ann\n", "# id -u ann\ntelegram = 1001\n",
	).Replace(setupConfig)+"\n[channels.telegram]\ntoken_file = \""+r.tokenFile()+"\"\nserver_url = \""+r.api.URL+"\"\n", r.config())
	c, err := config.Parse("permesso.toml", []byte(r.config()))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Empty(t, r.api.State().Refused())
	require.Empty(t, r.api.Unacknowledged())

	// Bob joins in a group; he has no name here so far. The token is found in its file.
	delete(r.env, telegramToken)
	r.begin("--approver", "bob", "--json", "--yes")
	number = r.number()
	r.api.Say(tgBob, tgFamily, "/start@permesso_bot "+number)
	tapsTestCard(t, r.api, tgBob, tgFamily)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.said.said(), `saw     Bob (@bob), id 1002, in "Family\u{202E}", group -1001000000001`)
	var got setupResult
	require.NoError(t, json.Unmarshal(r.out.Bytes(), &got), r.out.String())
	require.Equal(t, setupResult{
		Bot: "permesso_bot", Workspace: "default", Approver: "bob", Telegram: tgBob, Chat: tgFamily, Tapped: true,
		Config: r.env["PERMESSO_CONFIG"], TokenFile: r.tokenFile(), Hints: got.Hints,
	}, got)
	require.Len(t, got.Hints, 2)
	require.Contains(t, got.Hints[1], "in groups @permesso_bot receives only commands", "the bot is in privacy mode")
	c, err = config.Parse("permesso.toml", []byte(r.config()))
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "bob"}, c.Workspaces["default"].Approvers)
	require.Equal(t, "1002", c.Approvers["bob"].Telegram)
	require.Equal(t, config.TelegramChat{ChatID: tgFamily}, c.TelegramChats["default"])

	// Ann moves it into a topic. She is recognised.
	topic := r.api.AddTopic(tgForum, "gate")
	r.begin("--yes")
	number = r.number()
	r.api.Post(tgForum, botapi.Message{From: &botapi.User{ID: tgAnn}, Text: "/start@permesso_bot " + number, ThreadID: topic})
	tapsTestCard(t, r.api, tgAnn, tgForum)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.config(), fmt.Sprintf("telegram = { chat_id = %d, thread_id = %d }\n", tgForum, topic))
	require.NotContains(t, r.config(), fmt.Sprint(tgFamily))

	// In private it says that the topic stays where people are asked.
	r.begin()
	number = r.number()
	r.api.Say(tgAnn, tgAnn, "/start "+number)
	r.said.awaits(fmt.Sprintf("workspace default keeps group %d, topic %d", tgForum, topic))
	tapsTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.config(), fmt.Sprintf("telegram = { chat_id = %d, thread_id = %d }\n", tgForum, topic))
}

// A person at a terminal, with two workspaces to choose from.
func TestTelegramSetupAtATerminal(t *testing.T) {
	api := newTelegram(t)
	d, home := newDemo(t), t.TempDir()
	file := filepath.Join(home, "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte(setupConfig+"[workspaces.research]\n"), 0o600))
	d.cmd = osexec.Command(program(t, true), "telegram", "setup")
	d.cmd.Env = []string{"HOME=" + home, "PERMESSO_CONFIG=" + file, "PERMESSO_HOME=" + filepath.Join(home, "state"), telegramServer + "=" + api.URL}
	keys := d.keyboard()
	types := func(prompt, line string) {
		t.Helper()
		d.awaits(prompt)
		_, err := keys.WriteString(line)
		require.NoError(t, err)
	}
	types("Token (not shown): ", "not one\n")
	types("Not a valid token", "")
	types("AA…\r\nToken (not shown): ", botapi.Token+"\r")
	number := numberOf(d)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid))
	require.NoError(t, err)
	require.NotContains(t, string(b), secretHalf)
	api.Say(tgEve, tgEve, "/start 12345")
	d.awaits("6666 wrote /start without the number, or with a wrong one")
	require.Regexp(t, `waiting for /start … \dm\d+s left`, d.said())
	api.Say(tgAnn, tgAnn, "/start "+number)
	types("[default] ", "reserch\n")
	types("hint: use one of default, research", "research\n")
	types("Which approver are you? A new name is added to [approvers].\r\n   [] ", "Ann!\n")
	types("not a valid name", "ann\n")
	tapsTestCard(t, api, tgAnn, tgAnn)
	said := d.ends(0)
	require.NotContains(t, said, secretHalf)
	require.NotContains(t, said, "not one", "what is typed for a token is not shown")
	holdsToken(t, filepath.Join(home, "telegram.token"))
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(b), secretHalf)
	require.Contains(t, string(b), "[workspaces.research]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n")
	out, err := osexec.Command(program(t, true), "config", "check", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ok      "+file+"\n", string(out))
}

// Ctrl-C at any question writes nothing, and gives the terminal back as it was.
func TestTelegramSetupStopped(t *testing.T) {
	for _, row := range []struct{ why, at, key string }{
		{"at the token", "Token (not shown): ", "\x03"},
		{"at the token, with Ctrl-D", "Token (not shown): ", "\x04"},
		{"while it waits", "waiting for /start", "\x03"},
	} {
		t.Run(row.why, func(t *testing.T) {
			api := newTelegram(t)
			d, home := newDemo(t), t.TempDir()
			file := filepath.Join(home, "permesso.toml")
			require.NoError(t, os.WriteFile(file, []byte(setupConfig), 0o600))
			d.cmd = osexec.Command("/bin/sh", "-c", `"$0" telegram setup; echo "code $?"; stty -a`, program(t, true))
			d.cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "PERMESSO_CONFIG=" + file, telegramServer + "=" + api.URL}
			if row.at == "waiting for /start" {
				d.cmd.Env = append(d.cmd.Env, telegramToken+"="+botapi.Token)
			}
			d.cmd.Args[2] = `trap : INT; ` + d.cmd.Args[2]
			keys := d.keyboard()
			d.awaits(row.at)
			_, err := keys.WriteString(row.key)
			require.NoError(t, err)
			d.awaits("; nothing was written")
			said := d.ends(0)
			require.Contains(t, said, "code 1\r\n")
			require.Regexp(t, `[ ;]echo[ ;]`, said, "the terminal shows again what is typed")
			left, err := os.ReadDir(home)
			require.NoError(t, err)
			require.Len(t, left, 1)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, setupConfig, string(b))
		})
	}
}

func TestTelegramSetupRefuses(t *testing.T) {
	starts := func(r *setupRun) { r.api.Say(tgAnn, tgAnn, "/start "+r.number()) }
	inFamily := func(r *setupRun) { r.api.Say(tgAnn, tgFamily, "/start@permesso_bot "+r.number()) }
	served := func(r *setupRun) {
		layout := ipc.Layout{Home: r.env["PERMESSO_HOME"]}
		require.NoError(r.t, layout.PrepareHome(ipc.OS()))
		require.NoError(r.t, os.WriteFile(layout.Lock(), nil, 0o600))
		lock, err := ipc.OS().TryLock(layout.Lock())
		require.NoError(r.t, err)
		r.t.Cleanup(func() { _ = lock.Close() })
	}
	file := func(name, text string, mode os.FileMode) func(r *setupRun) {
		return func(r *setupRun) {
			require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), mode))
			require.NoError(r.t, os.Chmod(filepath.Join(r.dir, name), mode))
		}
	}
	for _, row := range []struct {
		why, config string
		args        []string
		before      func(r *setupRun) // it begins
		during      func(r *setupRun) // it waits for /start
		code        int
		says        string
	}{
		{why: "no configuration", code: exitError, says: "no configuration file\nhint: run permesso init", before: func(r *setupRun) {
			delete(r.env, "PERMESSO_CONFIG")
			r.env["HOME"] = r.dir
		}},
		{why: "no such workspace", config: setupConfig, args: []string{"--workspace", "w"}, code: exitUsage, says: `no workspace "w"`},
		{
			why: "two workspaces", config: setupConfig + "[workspaces.two]\n", code: exitUsage,
			says: "--workspace is required: there is more than one\nhint: set --workspace to one of: default, two",
		},
		{why: "no name", config: setupConfig, args: []string{"--approver", "Ann!"}, code: exitUsage, says: `"Ann!" is not a valid name`},
		{
			why: "no token", config: setupConfig, before: func(r *setupRun) { delete(r.env, telegramToken) }, code: exitUsage,
			says: "no bot token and no terminal to ask for it\nhint: set --token-file FILE or PERMESSO_TELEGRAM_TOKEN",
		},
		{
			why: "no token, but something else", config: setupConfig, before: func(r *setupRun) { r.env[telegramToken] = "hunter2" }, code: exitError,
			says: "PERMESSO_TELEGRAM_TOKEN: not a valid bot token",
		},
		{
			why: "a token that everybody reads", config: setupConfig, before: file("t", botapi.Token, 0o644), args: []string{"--token-file", "DIR/t"}, code: exitError,
			says: "readable by other users; chmod 600",
		},
		{
			why: "a file without a token", config: setupConfig, before: file("t", "hunter2", 0o600), args: []string{"--token-file", "DIR/t"}, code: exitError,
			says: "t: not a valid bot token",
		},
		{why: "a file that is not there", config: setupConfig, args: []string{"--token-file", "DIR/t"}, code: exitError, says: "no such file"},
		{
			why: "another file", config: setupConfig + "[channels.telegram]\ntoken_file = \"/y\"\n", before: file("t", botapi.Token, 0o600), args: []string{"--token-file", "DIR/t"},
			code: exitError, says: "[channels.telegram] has another token_file",
		},
		{
			why: "a configured file without a token", config: setupConfig + "[channels.telegram]\ntoken_file = \"DIR/t\"\n", before: file("t", "hunter2", 0o600), code: exitError,
			says: "t: not a valid bot token",
		},
		{
			why: "a server in the clear", config: setupConfig, args: []string{"--server-url", "http://telegram.example.org"}, code: exitUsage,
			says: "server_url must be encrypted",
		},
		{
			why: "another server", config: setupConfig + "[channels.telegram]\nserver_url = \"https://y.org\"\n", code: exitError,
			says: "[channels.telegram] has another server_url",
		},
		{
			why: "a token that Telegram does not know", config: setupConfig, code: exitError,
			before: func(r *setupRun) { r.env[telegramToken] = "123456789:hunter2-hunter2-hunter2" },
			says:   "Telegram does not accept the token: is it complete, and still that of the bot?\nhint: get the token from @BotFather with /token",
		},
		{why: "no network", config: setupConfig, before: func(r *setupRun) { r.api.Close() }, code: exitError, says: "hint: check the network and server_url"},
		{
			why: "our own gate has the bot", config: setupConfig + "[channels.telegram]\n", before: served, code: exitLocked,
			says: "the running daemon receives this bot's messages, including your /start\nhint: stop the daemon",
		},
		{
			why: "a gate elsewhere has the bot", config: setupConfig, code: exitLocked, before: func(r *setupRun) {
				ctx, stop := context.WithCancel(context.Background())
				var other sync.WaitGroup
				other.Go(func() {
					for ctx.Err() == nil {
						_ = callBot(ctx, r.api, "getUpdates?timeout=50")
					}
				})
				r.t.Cleanup(func() { stop(); other.Wait() })
			}, says: "another program gets the messages of this bot; nothing was written\nhint: stop the other daemon",
		},
		{
			why: "a webhook has the bot", config: setupConfig, code: exitLocked,
			before: func(r *setupRun) {
				require.NoError(r.t, callBot(context.Background(), r.api, "setWebhook?url=http://127.0.0.1:9/"))
			},
			says: "another program gets the messages of this bot, by a webhook; nothing was written",
		},
		{why: "nobody writes", config: setupConfig, args: []string{"--timeout", "100ms"}, code: exitError, says: "timeout waiting for /start with the number; nothing was written"},
		{
			why: "somebody guesses", config: setupConfig, code: exitError, during: func(r *setupRun) {
				r.number()
				for range 20 {
					r.api.Say(tgEve, tgEve, "/start 1")
				}
			}, says: "somebody tries out numbers; nothing was written",
		},
		{why: "nobody taps", config: setupConfig, args: []string{"--timeout", "1s"}, during: starts, code: exitError, says: "timeout waiting for the tap on the test card; nothing was written"},
		{
			why: "two of whom it may be", config: strings.Replace(setupConfig, `["ann"]`, `["ann", "bob"]`, 1) + "[approvers.bob]\nlocal = 7\n", during: starts, code: exitUsage,
			says: "--approver is required: no approver has Telegram id 1001\nhint: set --approver NAME",
		},
		{why: "she has another id", config: setupConfig + "telegram = 7\n", args: []string{"--approver", "ann"}, during: starts, code: exitError, says: `approver "ann" is 7 at Telegram already`},
		{why: "it is somebody else's id", config: setupConfig + "[approvers.bob]\ntelegram = 1001\n", args: []string{"--approver", "ann"}, during: starts, code: exitError, says: `1001 is approver "bob" already`},
		{
			why: "somebody else's workspace", config: setupConfig + "[approvers.bob]\nlocal = 7\n", args: []string{"--approver", "bob"}, during: starts, code: exitError,
			before: func(r *setupRun) {
				text := strings.Replace(r.config(), `["ann"]`, "[\"ann\"]\nprincipal = \"ann\"", 1)
				require.NoError(r.t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
			}, says: `only "ann" decides in workspace "default"`,
		},
		{
			why: "another chat", config: strings.Replace(setupConfig, "autonomy", "telegram = { chat_id = -5 }\nautonomy", 1), during: inFamily, code: exitUsage,
			says: "workspace 'default' already uses group -5\nhint: --yes replaces it",
		},
		{
			why: "a file that is not plain", config: "workspaces = { default = { approvers = [\"ann\"] } }\n[approvers.ann]\nlocal = 7\n", during: starts, code: exitError,
			says: "[workspaces.default] is not a table with a header of its own here (nothing was changed)\nhint: write into it by hand: channels = [\"telegram\"]",
		},
		{
			why: "another token lies there", config: setupConfig, before: file("telegram.token", "123456789:hunter2-hunter2-hunter2", 0o600),
			during: func(r *setupRun) { starts(r); tapsTestCard(r.t, r.api, tgAnn, tgAnn) }, code: exitError,
			says: "telegram.token exists with other content\nhint: remove the file",
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			r := newSetup(t, "")
			if row.config != "" {
				require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(strings.ReplaceAll(row.config, "DIR", r.dir)), 0o600))
			}
			if row.before != nil {
				row.before(r)
			}
			before := listing(t, r.dir)
			for i := range row.args {
				row.args[i] = strings.ReplaceAll(row.args[i], "DIR", r.dir)
			}
			r.begin(row.args...)
			if row.during != nil {
				row.during(r)
			}
			require.Equal(t, row.code, r.ends(), r.said.said())
			require.Contains(t, r.said.said(), row.says)
			require.NotContains(t, r.said.said(), "hunter2")
			require.Equal(t, before, listing(t, r.dir), "nothing was written")
		})
	}
}

// callBot calls a method as another program would.
func callBot(ctx context.Context, api *botapi.Server, method string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+"/bot"+botapi.Token+"/"+method, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// listing is every file below a folder, with what is in it.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		all[name] = string(b)
		return err
	}))
	return all
}

// A gate that runs without a bot takes up what setup writes.
func TestTelegramSetupBesideAGate(t *testing.T) {
	p := newPlace(t, "default", setupConfig)
	d := p.serve()
	d.awaitLog(`"serving"`)
	r := newSetup(t, "")
	r.env["PERMESSO_CONFIG"], r.env["PERMESSO_HOME"] = p.config, p.layout.Home
	r.begin()
	r.api.Say(tgAnn, tgAnn, "/start "+r.number())
	tapsTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.said.said(), "hint: the running daemon loads the change by itself\n")
	id := p.ask(`{"tool_name":"anything","request_data":{"a":1}}`)
	awaitMessage(t, r.api, tgAnn, "🔐 Approval required · default · anything · "+id[:8], "❌ Deny")
	code, out, errs := p.run("", "telegram", "test")
	require.Zero(t, code, errs)
	require.Equal(t, "sent    default: private chat 1001\n", out)
	r.begin()
	require.Equal(t, exitLocked, r.ends(), "and now it has the bot")
	d.stop()
	require.NotContains(t, d.said()+out+errs, secretHalf)
}

// The webhook of one's own gate, which is down, is no obstacle.
func TestTelegramSetupWithAWebhook(t *testing.T) {
	r := newSetup(t, "")
	text := setupConfig + "[channels.telegram]\nwebhook = { listen = \"127.0.0.1:9\", url = \"https://127.0.0.1:8443/\", secret_file = \"/x\" }\n"
	require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
	require.NoError(t, callBot(t.Context(), r.api, "setWebhook?url=http://127.0.0.1:9/"))
	r.begin()
	r.api.Say(tgAnn, tgAnn, "/start "+r.number())
	tapsTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.ends(), r.said.said())
	require.Contains(t, r.said.said(), "webhook removed; permesso serve sets it again\n")
	require.Contains(t, r.said.said(), "hint: PERMESSO_TELEGRAM_TOKEN must also be set in the daemon's environment\n", "where the token stayed")
	require.NoFileExists(t, r.tokenFile())
}

func TestTelegramTest(t *testing.T) {
	r := newSetup(t, setupConfig)
	run := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(name string) string { return r.env[name] }}
		code := m.Run(t.Context(), append([]string{"telegram", "test"}, args...))
		require.NotContains(t, out.String()+errs.String(), secretHalf)
		return code, out.String(), errs.String()
	}
	code, _, errs := run()
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "[channels.telegram] is not configured\nhint: permesso telegram setup")

	text := fmt.Sprintf(`[channels.telegram]
server_url = %q
[approvers.ann]
telegram = %d
language = "it"
[approvers.bob]
telegram = %d
[workspaces.one]
approvers = ["ann", "bob"]
channels = ["telegram"]
[workspaces.two]
approvers = ["ann"]
channels = ["telegram"]
telegram = { chat_id = %d }
[workspaces.three]
approvers = ["ann"]
`, r.api.URL, tgAnn, tgBob, tgFamily)
	require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
	r.api.Say(tgAnn, tgAnn, "hello")
	code, out, errs := run()
	require.Equal(t, exitError, code)
	require.Equal(t, "sent    one: private chat 1001\nsent    two: group -1001000000001\n", out)
	require.Contains(t, errs, "permesso: one: private chat 1002: forbidden, Forbidden: bot can't initiate conversation with a user\n")
	require.Contains(t, errs, "permesso: 1 of 3 chats did not get the message\nhint: write /start to the bot in that chat")
	require.Equal(t, "🔐 Scheda di prova\nQui permesso chiederà per lo spazio one. Nulla aspetta e nulla viene eseguito.", r.api.Messages(tgAnn)[1].Text)

	code, out, errs = run("--workspace", "two", "--json")
	require.Zero(t, code, errs)
	require.JSONEq(t, `[{"workspace":"two","chat_id":-1001000000001,"thread_id":0,"error":""}]`, out)
	code, _, errs = run("--workspace", "three")
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "no workspace uses Telegram")
	code, _, errs = run("--workspace", "four")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `no workspace "four"`)
	r.env[telegramToken] = "123456789:hunter2-hunter2-hunter2"
	code, _, errs = run()
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "Telegram does not accept the token")
}

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
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
	"github.com/permesso-dev/permesso/ipc"
)

// Telegram ids of the users and groups in these tests.
const (
	tgAnn, tgBob, tgEve int64 = 1001, 1002, 6666
	tgFamily            int64 = -1001000000001
	tgForum             int64 = -1001000000002
)

// secretHalf is the secret part of the token. No output may contain it.
const secretHalf = "strict-fake-and-nobodys-token"

// newTelegram is a strict fake of Telegram with some users and groups.
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

// setupRun is one run of telegram setup in this process, without a terminal.
type setupRun struct {
	t    *testing.T
	api  *botapi.Server
	dir  string
	env  map[string]string
	said *demoRun // stdout and stderr
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
		home.TelegramToken: botapi.Token, setup.TelegramServer: r.api.URL,
	}
	if text != "" {
		require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
	}
	return r
}

// start runs it in the background.
func (r *setupRun) start(args ...string) {
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

// awaitExit returns the exit code, and requires that the output does not contain the token.
func (r *setupRun) awaitExit() int {
	r.t.Helper()
	select {
	case code := <-r.code:
		require.NotContains(r.t, r.said.output()+r.out.String(), secretHalf)
		return code
	case <-time.After(testTimeout):
		require.Fail(r.t, "setup does not exit", "%s", r.said.output())
		return 0
	}
}

var numberPattern = regexp.MustCompile(`/start (\d{6})\n`)

// number waits for the number that setup prints.
func (r *setupRun) number() string { return numberOf(r.said) }

func numberOf(d *demoRun) string {
	d.t.Helper()
	d.awaitOutput("waiting for /start")
	found := numberPattern.FindStringSubmatch(strings.ReplaceAll(d.output(), "\r", ""))
	require.NotNil(d.t, found, d.output())
	return found[1]
}

// tapTestCard waits for the test card in a chat and taps its button.
func tapTestCard(t testing.TB, api *botapi.Server, user, chat int64) {
	t.Helper()
	m := awaitMessage(t, api, chat, "🔐 Test card", "✅ It works")
	tap, err := api.Tap(user, chat, m.ID, "✅ It works")
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(context.Background(), testTimeout)
	defer stop()
	answer, err := tap.Answer(ctx)
	require.NoError(t, err)
	require.Equal(t, "Your tap arrived.", answer.Text)
}

// awaitMessage waits for a message from the bot with this text and this button; "": any buttons.
func awaitMessage(t testing.TB, api *botapi.Server, chat int64, text, button string) (found botapi.Message) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), testTimeout)
	defer stop()
	err := api.Await(ctx, func(s botapi.State) bool {
		for _, m := range s.FromBot(chat) {
			if _, ok := m.Button(button); strings.Contains(m.Text, text) && (ok || button == "") {
				found = m
				return true
			}
		}
		return false
	})
	require.NoError(t, err, "%s in %d: %+v", text, chat, api.State().FromBot(chat))
	return found
}

func (r *setupRun) config() string {
	r.t.Helper()
	b, err := os.ReadFile(r.env["PERMESSO_CONFIG"])
	require.NoError(r.t, err)
	return string(b)
}

func (r *setupRun) tokenFile() string { return filepath.Join(r.dir, "telegram.token") }

// requireTokenFile requires a file with the token and mode 0600.
func requireTokenFile(t testing.TB, file string) {
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
	r.start()
	number := r.number()
	require.Contains(t, r.said.output(), "bot     @permesso_bot\n")
	require.Contains(t, r.said.output(), "open https://t.me/permesso_bot?start="+number+", or write to @permesso_bot:  /start "+number+"\n")
	r.api.Say(tgAnn, tgAnn, "/start "+number)
	tapTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.said.output(), "saw     Ann (@ann), id 1001, in private\n")
	require.Contains(t, r.said.output(), "hint: start the daemon: permesso serve, or permesso service install\n")
	requireTokenFile(t, r.tokenFile())
	require.Equal(t, strings.NewReplacer(
		"approvers = [\"ann\"]\n", "approvers = [\"ann\"]\nchannels = [\"telegram\"]\n",
		"# id -u ann\n", "# id -u ann\ntelegram = 1001\n",
	).Replace(setupConfig)+"\n[channels.telegram]\ntoken_file = \""+r.tokenFile()+"\"\nserver_url = \""+r.api.URL+"\"\n", r.config())
	c, err := config.Parse("permesso.toml", []byte(r.config()))
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Empty(t, r.api.State().Refused())
	require.Empty(t, r.api.Unacknowledged())

	// Bob joins in a group as a new approver. The token comes from its file.
	delete(r.env, home.TelegramToken)
	r.start("--approver", "bob", "--json", "--yes")
	number = r.number()
	r.api.Say(tgBob, tgFamily, "/start@permesso_bot "+number)
	tapTestCard(t, r.api, tgBob, tgFamily)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.said.output(), `saw     Bob (@bob), id 1002, in "Family\u{202E}", group -1001000000001`)
	var got setup.TelegramResult
	require.NoError(t, json.Unmarshal(r.out.Bytes(), &got), r.out.String())
	require.Equal(t, setup.TelegramResult{
		Bot: "permesso_bot", Workspace: "default", Approver: "bob", Telegram: tgBob, Chat: tgFamily, Tapped: true,
		Config: r.env["PERMESSO_CONFIG"], TokenFile: r.tokenFile(), Hints: got.Hints,
	}, got)
	require.Len(t, got.Hints, 2)
	require.Contains(t, got.Hints[1], "in groups @permesso_bot receives only commands", "the bot is in privacy mode")
	c, err = config.Parse("permesso.toml", []byte(r.config()))
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "bob"}, c.Workspaces["default"].Approvers)
	require.Equal(t, "1002", c.Approvers["bob"].IDs["telegram"])
	require.Equal(t, config.TelegramChat{ChatID: tgFamily}, c.TelegramChats["default"])

	// Ann, a known approver, moves the chat into a topic.
	topic := r.api.AddTopic(tgForum, "gate")
	r.start("--yes")
	number = r.number()
	r.api.Post(tgForum, botapi.Message{From: &botapi.User{ID: tgAnn}, Text: "/start@permesso_bot " + number, ThreadID: topic})
	tapTestCard(t, r.api, tgAnn, tgForum)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.config(), fmt.Sprintf("telegram = { chat_id = %d, thread_id = %d }\n", tgForum, topic))
	require.NotContains(t, r.config(), fmt.Sprint(tgFamily))

	// In a private chat setup reports that the topic stays the chat of the workspace.
	r.start()
	number = r.number()
	r.api.Say(tgAnn, tgAnn, "/start "+number)
	r.said.awaitOutput(fmt.Sprintf("workspace default keeps group %d, topic %d", tgForum, topic))
	tapTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.config(), fmt.Sprintf("telegram = { chat_id = %d, thread_id = %d }\n", tgForum, topic))
}

// Setup on a terminal, with two workspaces to choose from.
func TestTelegramSetupAtATerminal(t *testing.T) {
	api := newTelegram(t)
	d, home := newDemo(t), t.TempDir()
	file := filepath.Join(home, "permesso.toml")
	require.NoError(t, os.WriteFile(file, []byte(setupConfig+"[workspaces.research]\n"), 0o600))
	d.cmd = osexec.Command(program(t, true), "telegram", "setup")
	d.cmd.Env = []string{"HOME=" + home, "PERMESSO_CONFIG=" + file, "PERMESSO_HOME=" + filepath.Join(home, "state"), setup.TelegramServer + "=" + api.URL}
	keys := d.startOnTerminal()
	types := func(prompt, line string) {
		t.Helper()
		d.awaitOutput(prompt)
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
	d.awaitOutput("6666 wrote /start without the number, or with a wrong one")
	require.Regexp(t, `waiting for /start … \dm\d+s left`, d.output())
	api.Say(tgAnn, tgAnn, "/start "+number)
	types("[default] ", "reserch\n")
	types("hint: use one of default, research", "research\n")
	types("Which approver are you? A new name is added to [approvers].\r\n   [] ", "Ann!\n")
	types("not a valid name", "ann\n")
	tapTestCard(t, api, tgAnn, tgAnn)
	said := d.awaitExit(0)
	require.NotContains(t, said, secretHalf)
	require.NotContains(t, said, "not one", "the typed token is not echoed")
	requireTokenFile(t, filepath.Join(home, "telegram.token"))
	b, err = os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(b), secretHalf)
	require.Contains(t, string(b), "[workspaces.research]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\n")
	out, err := osexec.Command(program(t, true), "config", "check", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ok      "+file+"\n", string(out))
}

// Ctrl-C at any prompt writes nothing and restores the terminal.
func TestTelegramSetupStopped(t *testing.T) {
	for _, row := range []struct{ why, at, key string }{
		{"at the token", "Token (not shown): ", "\x03"},
		{"at the token, with Ctrl-D", "Token (not shown): ", "\x04"},
		{"while it waits", "waiting for /start", "\x03"},
	} {
		t.Run(row.why, func(t *testing.T) {
			api := newTelegram(t)
			d, dir := newDemo(t), t.TempDir()
			file := filepath.Join(dir, "permesso.toml")
			require.NoError(t, os.WriteFile(file, []byte(setupConfig), 0o600))
			d.cmd = osexec.Command("/bin/sh", "-c", `"$0" telegram setup; echo "code $?"; stty -a`, program(t, true))
			d.cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "PERMESSO_CONFIG=" + file, setup.TelegramServer + "=" + api.URL}
			if row.at == "waiting for /start" {
				d.cmd.Env = append(d.cmd.Env, home.TelegramToken+"="+botapi.Token)
			}
			d.cmd.Args[2] = `trap : INT; ` + d.cmd.Args[2]
			keys := d.startOnTerminal()
			d.awaitOutput(row.at)
			_, err := keys.WriteString(row.key)
			require.NoError(t, err)
			d.awaitOutput("; nothing was written")
			said := d.awaitExit(0)
			require.Contains(t, said, "code 1\r\n")
			require.Regexp(t, `[ ;]echo[ ;]`, said, "the terminal echoes again")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, left, 1)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, setupConfig, string(b))
		})
	}
}

func TestTelegramSetupRefuses(t *testing.T) {
	t.Parallel()
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
		before      func(r *setupRun) // before setup starts
		during      func(r *setupRun) // while setup waits for /start
		code        int
		says        string
	}{
		{why: "no configuration", code: console.ExitError, says: "no configuration file\nhint: run permesso init", before: func(r *setupRun) {
			delete(r.env, "PERMESSO_CONFIG")
			r.env["HOME"] = r.dir
		}},
		{why: "no such workspace", config: setupConfig, args: []string{"--workspace", "w"}, code: console.ExitUsage, says: `no workspace "w"`},
		{
			why: "two workspaces", config: setupConfig + "[workspaces.two]\n", code: console.ExitUsage,
			says: "--workspace is required: there is more than one\nhint: set --workspace to one of: default, two",
		},
		{why: "no name", config: setupConfig, args: []string{"--approver", "Ann!"}, code: console.ExitUsage, says: `"Ann!" is not a valid name`},
		{
			why: "no token", config: setupConfig, before: func(r *setupRun) { delete(r.env, home.TelegramToken) }, code: console.ExitUsage,
			says: "no bot token and no terminal to ask for it\nhint: set --token-file FILE or PERMESSO_TELEGRAM_TOKEN",
		},
		{
			why: "no token, but something else", config: setupConfig, before: func(r *setupRun) { r.env[home.TelegramToken] = "hunter2" }, code: console.ExitError,
			says: "PERMESSO_TELEGRAM_TOKEN: not a valid bot token",
		},
		{
			why: "a token readable by others", config: setupConfig, before: file("t", botapi.Token, 0o644), args: []string{"--token-file", "DIR/t"}, code: console.ExitError,
			says: "readable by other users; chmod 600",
		},
		{
			why: "a file without a token", config: setupConfig, before: file("t", "hunter2", 0o600), args: []string{"--token-file", "DIR/t"}, code: console.ExitError,
			says: "t: not a valid bot token",
		},
		{why: "a missing file", config: setupConfig, args: []string{"--token-file", "DIR/t"}, code: console.ExitError, says: "no such file"},
		{
			why: "another token file", config: setupConfig + "[channels.telegram]\ntoken_file = \"/y\"\n", before: file("t", botapi.Token, 0o600), args: []string{"--token-file", "DIR/t"},
			code: console.ExitError, says: "[channels.telegram] has another token_file",
		},
		{
			why: "a configured file without a token", config: setupConfig + "[channels.telegram]\ntoken_file = \"DIR/t\"\n", before: file("t", "hunter2", 0o600), code: console.ExitError,
			says: "t: not a valid bot token",
		},
		{
			why: "an unencrypted server", config: setupConfig, args: []string{"--server-url", "http://telegram.example.org"}, code: console.ExitUsage,
			says: "server_url must use https",
		},
		{
			why: "another server", config: setupConfig + "[channels.telegram]\nserver_url = \"https://y.org\"\n", code: console.ExitError,
			says: "[channels.telegram] has another server_url",
		},
		{
			why: "a token that Telegram does not know", config: setupConfig, code: console.ExitError,
			before: func(r *setupRun) { r.env[home.TelegramToken] = "123456789:hunter2-hunter2-hunter2" },
			says:   "Telegram does not accept the token: check that it is complete and still valid\nhint: get the token from @BotFather with /token",
		},
		{why: "no network", config: setupConfig, before: func(r *setupRun) { r.api.Close() }, code: console.ExitError, says: "hint: check the network and server_url"},
		{
			why: "the daemon of this home uses the bot", config: setupConfig + "[channels.telegram]\n", before: served, code: console.ExitLocked,
			says: "the running daemon receives this bot's messages, including your /start\nhint: stop the daemon",
		},
		{
			why: "another program polls the bot", config: setupConfig, code: console.ExitLocked, before: func(r *setupRun) {
				ctx, stop := context.WithCancel(context.Background())
				var other sync.WaitGroup
				other.Go(func() {
					for ctx.Err() == nil {
						_ = callBot(ctx, r.api, "getUpdates?timeout=50")
					}
				})
				r.t.Cleanup(func() { stop(); other.Wait() })
			}, says: "another program gets the updates of this bot; nothing was written\nhint: stop the other daemon",
		},
		{
			why: "another program uses a webhook", config: setupConfig, code: console.ExitLocked,
			before: func(r *setupRun) {
				require.NoError(r.t, callBot(context.Background(), r.api, "setWebhook?url=http://127.0.0.1:9/"))
			},
			says: "another program gets the updates of this bot, through a webhook; nothing was written",
		},
		{why: "no /start", config: setupConfig, args: []string{"--timeout", "100ms"}, code: console.ExitError, says: "timeout waiting for /start with the number; nothing was written"},
		{
			why: "guessed numbers", config: setupConfig, code: console.ExitError, during: func(r *setupRun) {
				r.number()
				for range 20 {
					r.api.Say(tgEve, tgEve, "/start 1")
				}
			}, says: "too many wrong numbers; nothing was written",
		},
		{why: "no tap", config: setupConfig, args: []string{"--timeout", "1s"}, during: starts, code: console.ExitError, says: "timeout waiting for the tap on the test card; nothing was written"},
		{
			why: "two possible approvers", config: strings.Replace(setupConfig, `["ann"]`, `["ann", "bob"]`, 1) + "[approvers.bob]\nlocal = 7\n", during: starts, code: console.ExitUsage,
			says: "--approver is required: no approver has Telegram id 1001\nhint: set --approver NAME",
		},
		{why: "the approver has another id", config: setupConfig + "telegram = 7\n", args: []string{"--approver", "ann"}, during: starts, code: console.ExitError, says: `approver "ann" already has the Telegram id 7`},
		{why: "the id of another approver", config: setupConfig + "[approvers.bob]\ntelegram = 1001\n", args: []string{"--approver", "ann"}, during: starts, code: console.ExitError, says: `the id 1001 already belongs to approver "bob"`},
		{
			why: "a workspace with another principal", config: setupConfig + "[approvers.bob]\nlocal = 7\n", args: []string{"--approver", "bob"}, during: starts, code: console.ExitError,
			before: func(r *setupRun) {
				text := strings.Replace(r.config(), `["ann"]`, "[\"ann\"]\nprincipal = \"ann\"", 1)
				require.NoError(r.t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
			}, says: `only the principal "ann" may decide in workspace "default"`,
		},
		{
			why: "another chat", config: strings.Replace(setupConfig, "autonomy", "telegram = { chat_id = -5 }\nautonomy", 1), during: inFamily, code: console.ExitUsage,
			says: "workspace 'default' already uses group -5\nhint: --yes replaces it",
		},
		{
			why: "a file with inline tables", config: "workspaces = { default = { approvers = [\"ann\"] } }\n[approvers.ann]\nlocal = 7\n", during: starts, code: console.ExitError,
			says: "[workspaces.default] has no header of its own here (nothing was changed)\nhint: add by hand: channels = [\"telegram\"]",
		},
		{
			why: "a file with another token", config: setupConfig, before: file("telegram.token", "123456789:hunter2-hunter2-hunter2", 0o600),
			during: func(r *setupRun) { starts(r); tapTestCard(r.t, r.api, tgAnn, tgAnn) }, code: console.ExitError,
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
			before := readFiles(t, r.dir)
			for i := range row.args {
				row.args[i] = strings.ReplaceAll(row.args[i], "DIR", r.dir)
			}
			r.start(row.args...)
			if row.during != nil {
				row.during(r)
			}
			require.Equal(t, row.code, r.awaitExit(), r.said.output())
			require.Contains(t, r.said.output(), row.says)
			require.NotContains(t, r.said.output(), "hunter2")
			require.Equal(t, before, readFiles(t, r.dir), "nothing was written")
		})
	}
}

// callBot calls a method like another program.
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

// readFiles maps every file below a folder to its content.
func readFiles(t *testing.T, dir string) map[string]string {
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

// A running daemon without a bot applies what setup writes.
func TestTelegramSetupWhileADaemonRuns(t *testing.T) {
	t.Parallel()
	p := newRig(t, "default", setupConfig+"[tools.anything]\ncapability = \"channel:out\"\nargs = { a = \"number\" }\n")
	d := p.serve()
	d.awaitLog(`"serving"`)
	r := newSetup(t, "")
	r.env["PERMESSO_CONFIG"], r.env["PERMESSO_HOME"] = p.config, p.layout.Home
	r.start()
	r.api.Say(tgAnn, tgAnn, "/start "+r.number())
	tapTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.said.output(), "hint: the running daemon loads the change by itself\n")
	id := p.ask(`{"tool_name":"anything","request_data":{"a":1}}`)
	awaitMessage(t, r.api, tgAnn, "→ approve "+id[:8]+" ", "❌ Deny")
	code, out, errs := p.run("", "telegram", "test")
	require.Zero(t, code, errs)
	require.Equal(t, "sent    default: private chat 1001\n", out)
	r.start()
	require.Equal(t, console.ExitLocked, r.awaitExit(), "the daemon uses the bot now")
	d.stop()
	require.NotContains(t, d.logged()+out+errs, secretHalf)
}

// The webhook of this home's daemon, which is down, does not prevent setup.
func TestTelegramSetupWithAWebhook(t *testing.T) {
	r := newSetup(t, "")
	text := setupConfig + "[channels.telegram]\nwebhook = { listen = \"127.0.0.1:9\", url = \"https://127.0.0.1:8443/\", secret_file = \"/x\" }\n"
	require.NoError(t, os.WriteFile(r.env["PERMESSO_CONFIG"], []byte(text), 0o600))
	require.NoError(t, callBot(t.Context(), r.api, "setWebhook?url=http://127.0.0.1:9/"))
	r.start()
	r.api.Say(tgAnn, tgAnn, "/start "+r.number())
	tapTestCard(t, r.api, tgAnn, tgAnn)
	require.Zero(t, r.awaitExit(), r.said.output())
	require.Contains(t, r.said.output(), "webhook removed; permesso serve sets it again\n")
	require.Contains(t, r.said.output(), "hint: PERMESSO_TELEGRAM_TOKEN must also be set in the daemon's environment\n", "the token is only in the environment")
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
	require.Equal(t, console.ExitError, code)
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
	require.Equal(t, console.ExitError, code)
	require.Equal(t, "sent    one: private chat 1001\nsent    two: group -1001000000001\n", out)
	require.Contains(t, errs, "permesso: one: private chat 1002: forbidden, Forbidden: bot can't initiate conversation with a user\n")
	require.Contains(t, errs, "permesso: 1 of 3 chats did not get the message\nhint: write /start to the bot in that chat")
	require.Equal(t, "🔐 Scheda di prova\nIn questa chat permesso chiederà le approvazioni per il workspace one. Nessuna richiesta è in attesa e non si esegue nulla.", r.api.Messages(tgAnn)[1].Text)

	code, out, errs = run("--workspace", "two", "--json")
	require.Zero(t, code, errs)
	require.JSONEq(t, `[{"workspace":"two","chat_id":-1001000000001,"thread_id":0,"error":""}]`, out)
	code, _, errs = run("--workspace", "three")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "no workspace uses Telegram")
	code, _, errs = run("--workspace", "four")
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "no workspace 'four'")
	r.env[home.TelegramToken] = "123456789:hunter2-hunter2-hunter2"
	code, _, errs = run()
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "Telegram does not accept the token")
}

package botapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// The users and chats of most tests.
const (
	ricardo  = int64(7001)
	stranger = int64(7002)
	silent   = int64(7003) // has never written to the bot
	group    = int64(-4001)
	forum    = int64(-1001)
)

// newServer starts a server with these users and chats.
func newServer(t *testing.T) *botapi.Server {
	t.Helper()
	s := botapi.Start(t)
	addUsers(s)
	return s
}

func addUsers(s *botapi.Server) {
	s.AddUser(botapi.User{ID: ricardo, FirstName: "Ricardo", Username: "ricardo"})
	s.AddUser(botapi.User{ID: stranger, FirstName: "Mallory", Username: "Ricardo"})
	s.AddUser(botapi.User{ID: silent, FirstName: "Silent"})
	s.AddChat(botapi.Chat{ID: group, Type: botapi.Group, Title: "Home"})
	s.AddChat(botapi.Chat{ID: forum, Type: botapi.Supergroup, Title: "Works", IsForum: true})
	s.Say(ricardo, ricardo, "/start")
}

// result is the answer of a method.
type result struct {
	Status      int `json:"-"`
	OK          bool
	Code        int `json:"error_code"`
	Description string
	Parameters  struct {
		RetryAfter int   `json:"retry_after"`
		MigrateTo  int64 `json:"migrate_to_chat_id"`
	}
	Result json.RawMessage
}

// message decodes the result as a message.
func (r result) message(t *testing.T) botapi.Message {
	t.Helper()
	require.True(t, r.OK, r.Description)
	var m botapi.Message
	require.NoError(t, json.Unmarshal(r.Result, &m))
	return m
}

// ids returns the IDs of the result's updates.
func (r result) ids(t *testing.T) []int64 {
	t.Helper()
	require.True(t, r.OK, r.Description)
	var updates []struct {
		ID int64 `json:"update_id"`
	}
	require.NoError(t, json.Unmarshal(r.Result, &updates))
	ids := []int64{}
	for _, u := range updates {
		ids = append(ids, u.ID)
	}
	return ids
}

type params map[string]any

// ask calls a method with JSON.
func ask(t *testing.T, s *botapi.Server, method string, p params) result {
	t.Helper()
	return <-later(t, s, method, p)
}

// later calls a method in the background.
func later(t *testing.T, s *botapi.Server, method string, p params) <-chan result {
	t.Helper()
	body, err := json.Marshal(p)
	require.NoError(t, err)
	got := make(chan result, 1)
	go func() {
		r, err := try(t.Context(), s.URL+"/bot"+botapi.Token+"/"+method, "application/json", body)
		if err != nil {
			r.Description = err.Error()
		}
		got <- r
	}()
	return got
}

func post(t *testing.T, link, kind string, body []byte) result {
	t.Helper()
	r, err := try(t.Context(), link, kind, body)
	require.NoError(t, err)
	return r
}

// try posts. If the body is no JSON, it becomes the error.
func try(ctx context.Context, link, kind string, body []byte) (r result, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, link, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return r, err
	}
	r.Status = resp.StatusCode
	if err := json.Unmarshal(answer, &r); err != nil {
		return r, errors.New(string(answer))
	}
	return r, nil
}

func entities(list ...any) any { return list }

func entity(kind string, offset, length int) params {
	return params{"type": kind, "offset": offset, "length": length}
}

func buttons(n int, b params) params {
	var rows []any
	for range n {
		rows = append(rows, []any{b})
	}
	return params{"inline_keyboard": rows}
}

func TestRefuses(t *testing.T) {
	s := newServer(t)
	s.Say(silent, group, "hello")
	m := ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "a card", "reply_markup": buttons(1, params{"text": "yes", "callback_data": "y"})}).message(t)
	theirs := s.Say(ricardo, ricardo, "mine")
	text := func(extra params) params {
		p := params{"chat_id": ricardo, "text": "hello"}
		for k, v := range extra {
			p[k] = v
		}
		return p
	}
	with := func(list ...any) params { return text(params{"entities": list}) }
	button := func(b params) params { return text(params{"reply_markup": buttons(1, b)}) }
	edit := func(extra params) params {
		p := text(extra)
		p["message_id"] = m.ID
		return p
	}

	tests := []struct {
		why    string
		method string
		params params
		code   int
		want   string
	}{
		{"there is no such method", "sendCard", nil, 404, "Not Found: method not found"},
		{"the real server ignores a misspelled parameter", "sendMessage", text(params{"disable_notifications": true}), 400, `strict fake: sendMessage has no supported parameter "disable_notifications"`},
		{"null", "sendMessage", text(params{"reply_markup": nil}), 400, `"reply_markup" is null`},

		{"no chat", "sendMessage", params{"text": "x"}, 400, "Bad Request: chat_id is empty"},
		{"an unknown chat", "sendMessage", params{"chat_id": 99, "text": "x"}, 400, "Bad Request: chat not found"},
		{"an unknown username", "sendMessage", params{"chat_id": "@unknown", "text": "x"}, 400, "Bad Request: chat not found"},
		{"a user who never wrote to the bot", "sendMessage", params{"chat_id": silent, "text": "x"}, 403, "Forbidden: bot can't initiate conversation with a user"},

		{"no text", "sendMessage", params{"chat_id": ricardo}, 400, "Bad Request: message text is empty"},
		{"invisible text", "sendMessage", text(params{"text": " \n\u200b "}), 400, "Bad Request: text must be non-empty"},
		{"one unit too many", "sendMessage", text(params{"text": strings.Repeat("x", 4097)}), 400, "Bad Request: message is too long"},
		{"units of UTF-16, not characters", "sendMessage", text(params{"text": strings.Repeat("🔐", 2049)}), 400, "Bad Request: message is too long"},
		{"beyond the size limit", "sendMessage", text(params{"text": strings.Repeat("x", 1<<15+1)}), 400, "Bad Request: text is too long"},
		{"trailing white space is removed", "sendMessage", text(params{"text": "x\n"}), 400, `Telegram would show "x" instead of "x\n"`},
		{"direction overrides are removed", "sendMessage", text(params{"text": "a\u202eb"}), 400, `Telegram would show "ab" instead of`},
		{"tabs become spaces", "sendMessage", text(params{"text": "a\tb"}), 400, `Telegram would show "a b" instead of`},

		{"parse_mode", "sendMessage", text(params{"parse_mode": "HTML"}), 400, "strict fake: parse_mode is not supported"},
		{"entities with parse_mode are ignored", "sendMessage", text(params{"parse_mode": "HTML", "entities": entities(entity("bold", 0, 1))}), 400, "strict fake: Telegram ignores entities"},
		{"invalid entities", "sendMessage", text(params{"entities": "[{"}), 400, "Bad Request: can't parse entities JSON object"},
		{"an unknown type", "sendMessage", with(entity("big", 0, 1)), 400, "Bad Request: can't parse MessageEntity: Unsupported type specified"},
		{"a negative offset", "sendMessage", with(entity("bold", -1, 1)), 400, "Bad Request: receive an entity with incorrect offset -1"},
		{"a negative length", "sendMessage", with(entity("bold", 0, -1)), 400, "Bad Request: receive an entity with incorrect length -1"},
		{"an empty entity is dropped", "sendMessage", with(entity("bold", 0, 0)), 400, "Telegram drops an empty entity"},
		{"after the text", "sendMessage", with(entity("bold", 5, 1)), 400, "Bad Request: entity begins after the end of the text at UTF-16 offset 5"},
		{"longer than the text", "sendMessage", with(entity("bold", 0, 6)), 400, "Bad Request: entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 6"},
		{"begins within a character", "sendMessage", text(params{"text": "🔐x", "entities": entities(entity("bold", 1, 2))}), 400, "Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset 0"},
		{"ends within a character", "sendMessage", text(params{"text": "x🔐", "entities": entities(entity("bold", 0, 2))}), 400, "Bad Request: entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol at byte offset 1"},
		{"overlapping entities are split", "sendMessage", with(entity("bold", 0, 3), entity("italic", 2, 3)), 400, "they overlap"},
		{"code contains no other entity", "sendMessage", with(entity("code", 0, 5), entity("bold", 1, 2)), 400, "code and pre contain no other entity"},
		{"code is not part of bold", "sendMessage", with(entity("bold", 0, 5), entity("pre", 1, 2)), 400, "code and pre contain no other entity"},
		{"nested quotations", "sendMessage", with(entity("blockquote", 0, 5), entity("expandable_blockquote", 1, 2)), 400, "quotations cannot be nested"},
		{"the same twice", "sendMessage", with(entity("bold", 0, 5), entity("bold", 0, 5)), 400, "duplicate entity"},
		{"an automatic entity", "sendMessage", with(entity("url", 0, 5)), 400, "Telegram finds every url by itself"},
		{"an unknown member of an entity", "sendMessage", with(params{"type": "bold", "offset": 0, "length": 1, "color": "red"}), 400, `unknown field "color"`},

		{"callback data of 65 bytes", "sendMessage", button(params{"text": "ok", "callback_data": strings.Repeat("x", 65)}), 400, "Bad Request: BUTTON_DATA_INVALID"},
		{"callback data counts in bytes", "sendMessage", button(params{"text": "ok", "callback_data": strings.Repeat("ü", 33)}), 400, "Bad Request: BUTTON_DATA_INVALID"},
		{"no callback data", "sendMessage", button(params{"text": "ok", "callback_data": ""}), 400, "Bad Request: can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"},
		{"a button without a text", "sendMessage", button(params{"callback_data": "x"}), 400, "Telegram shows no button without a text"},
		{"an empty button text", "sendMessage", button(params{"text": "", "callback_data": "x"}), 400, "Telegram shows no button without a text"},
		{"a button text that Telegram changes", "sendMessage", button(params{"text": "ok\u202e", "callback_data": "x"}), 400, "Telegram would show the button"},
		{"a button with more than a text and data", "sendMessage", button(params{"text": "ok", "callback_data": "x", "url": "https://a.test"}), 400, "a button has more than a text and callback data"},
		{"an entity with a link", "sendMessage", with(params{"type": "bold", "offset": 0, "length": 5, "url": "https://a.test"}), 400, "bold has more than an offset and a length"},
		{"more than a hundred buttons", "sendMessage", text(params{"reply_markup": buttons(101, params{"text": "ok", "callback_data": "x"})}), 400, "Bad Request: reply markup is too long"},
		{"an unknown member of a button", "sendMessage", button(params{"text": "ok", "callback": "x"}), 400, `unknown field "callback"`},
		{"two kinds of markup", "sendMessage", text(params{"reply_markup": params{"force_reply": true, "inline_keyboard": []any{}}}), 400, "or both"},
		{"a placeholder too long", "sendMessage", text(params{"reply_markup": params{"force_reply": true, "input_field_placeholder": strings.Repeat("x", 65)}}), 400, "placeholder is too long"},
		{"markup that is not JSON", "sendMessage", text(params{"reply_markup": "{"}), 400, "Bad Request: can't parse reply keyboard markup JSON object"},

		{"a reply to a missing message", "sendMessage", text(params{"reply_parameters": params{"message_id": 999}}), 400, "Bad Request: message to be replied not found"},
		{"a reply without a message", "sendMessage", text(params{"reply_parameters": params{}}), 400, `Bad Request: can't find field "message_id"`},
		{"a missing topic", "sendMessage", params{"chat_id": forum, "text": "x", "message_thread_id": 9}, 400, "Bad Request: message thread not found"},
		{"neither true nor false", "sendMessage", text(params{"disable_notification": "yes"}), 400, "neither true nor false"},

		{"no document", "sendDocument", params{"chat_id": ricardo}, 400, "Bad Request: there is no document in the request"},
		{"a caption too long", "sendDocument", params{"chat_id": ricardo, "document": "x", "caption": strings.Repeat("x", 1025)}, 400, "Bad Request: message caption is too long"},

		{"the same text again", "editMessageText", edit(params{"text": "a card", "reply_markup": buttons(1, params{"text": "yes", "callback_data": "y"})}), 400, "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"},
		{"a missing message", "editMessageText", text(params{"message_id": 999}), 400, "Bad Request: message to edit not found"},
		{"no message", "editMessageText", text(nil), 400, "Bad Request: message to edit not found"},
		{"another user's message", "editMessageText", text(params{"message_id": theirs.ID}), 400, "Bad Request: message can't be edited"},
		{"a forced reply in an edit", "editMessageText", edit(params{"reply_markup": params{"force_reply": true}}), 400, "Bad Request: inline keyboard expected"},
		{"a text too long", "editMessageText", edit(params{"text": strings.Repeat("x", 4097)}), 400, "Bad Request: message is too long"},

		{"an unknown tap", "answerCallbackQuery", params{"callback_query_id": "1"}, 400, "Bad Request: query is too old and response timeout expired or query ID is invalid"},
		{"an answer too long", "answerCallbackQuery", params{"callback_query_id": "1", "text": strings.Repeat("x", 201)}, 400, "Bad Request: MESSAGE_TOO_LONG"},
		{"commands in capitals", "setMyCommands", params{"commands": []any{params{"command": "Pending", "description": "x"}}}, 400, "Bad Request: BOT_COMMAND_INVALID"},
		{"a command without a description", "setMyCommands", params{"commands": []any{params{"command": "pending", "description": ""}}}, 400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID"},
		{"an unknown kind of update", "getUpdates", params{"allowed_updates": []string{"messages"}}, 400, `no updates of the kind "messages"`},
		{"a limit above 100", "getUpdates", params{"limit": 101}, 400, "limit is 1 to 100"},
		{"a webhook without TLS", "setWebhook", params{"url": "http://example.org/hook"}, 400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"},
		{"a webhook at another port", "setWebhook", params{"url": "https://example.org:9/hook"}, 400, "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"},
		{"a webhook secret with invalid characters", "setWebhook", params{"url": "https://example.org/hook", "secret_token": "a b"}, 400, "Bad Request: secret token contains unallowed characters"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.why, func(t *testing.T) {
			before := len(s.Messages(ricardo))
			r := ask(t, s, tt.method, tt.params)
			require.False(t, r.OK)
			require.Equal(t, tt.code, r.Code)
			require.Equal(t, tt.code, r.Status)
			require.Contains(t, r.Description, tt.want)
			require.Len(t, s.Messages(ricardo), before, "a refused call has no effect")
		})
	}
	require.Len(t, s.State().Refused(), len(tests), "each call is recorded")
	now, _ := s.State().Message(ricardo, m.ID)
	require.Zero(t, now.Edits)
}

func TestRefusesTheWrongBot(t *testing.T) {
	s := newServer(t)
	tests := []struct {
		why, path string
		code      int
		want      string
	}{
		{"another token", "/bot110201543:another-token-of-another-bot/getMe", 401, "Unauthorized"},
		{"no token at all", "/bot/getMe", 404, "Not Found"},
		{"not the API", "/", 404, "Not Found"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			r := post(t, s.URL+tt.path, "", nil)
			require.Equal(t, tt.code, r.Code)
			require.Equal(t, tt.want, r.Description)
		})
	}
}

func TestRefusesUnreachableChats(t *testing.T) {
	s := newServer(t)
	s.AddUser(botapi.User{ID: 7009, IsBot: true, FirstName: "Robot"})
	tests := []struct {
		why  string
		do   func()
		chat int64
		code int
		want string
		to   int64
	}{
		{"blocked", func() { s.Block(ricardo, true) }, ricardo, 403, "Forbidden: bot was blocked by the user", 0},
		{"unblocked", func() { s.Block(ricardo, false) }, ricardo, 200, "", 0},
		{"upgraded", func() { s.Upgrade(ricardo, group, -1004) }, group, 400, "Bad Request: group chat was upgraded to a supergroup chat", -1004},
		{"the supergroup", func() {}, -1004, 200, "", 0},
		{"a bot", func() {}, 7009, 403, "Forbidden: bot can't send messages to bots", 0},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			tt.do()
			r := ask(t, s, "sendMessage", params{"chat_id": tt.chat, "text": "x"})
			require.Equal(t, tt.code, r.Status)
			require.Equal(t, tt.want, r.Description)
			require.Equal(t, tt.to, r.Parameters.MigrateTo)
		})
	}
	require.Len(t, ask(t, s, "getUpdates", nil).ids(t), 5, "/start, blocked and unblocked, the upgrade in both chats")
}

func TestAccepts(t *testing.T) {
	s := newServer(t)
	topic := s.AddTopic(forum, "approvals")
	tests := []struct {
		why    string
		params params
	}{
		{"maximum length", params{"chat_id": ricardo, "text": strings.Repeat("x", 4096)}},
		{"maximum length in surrogate pairs", params{"chat_id": ricardo, "text": strings.Repeat("🔐", 2048)}},
		{"64 bytes of data", params{"chat_id": ricardo, "text": "x", "reply_markup": buttons(1, params{"text": "ok", "callback_data": strings.Repeat("x", 64)})}},
		{"the empty copy_text of the library", params{"chat_id": ricardo, "text": "x", "reply_markup": buttons(1, params{"text": "ok", "callback_data": "x", "copy_text": params{"text": ""}})}},
		{"a hundred buttons", params{"chat_id": ricardo, "text": "x", "reply_markup": buttons(100, params{"text": "ok", "callback_data": "x"})}},
		{"nested entities", params{"chat_id": ricardo, "text": "🔐 bold", "entities": entities(entity("blockquote", 0, 7), entity("bold", 0, 2), entity("code", 3, 4))}},
		{"entities side by side", params{"chat_id": ricardo, "text": "ab", "entities": entities(entity("code", 0, 1), entity("bold", 1, 1))}},
		{"an id as text", params{"chat_id": fmt.Sprint(ricardo), "text": "x"}},
		{"a topic", params{"chat_id": forum, "text": "x", "message_thread_id": topic}},
		{"a forced reply", params{"chat_id": ricardo, "text": "x", "reply_markup": params{"force_reply": true, "selective": true}}},
		{"a reply to a missing message, if allowed", params{"chat_id": ricardo, "text": "x", "reply_parameters": params{"message_id": 99, "allow_sending_without_reply": true}}},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			m := ask(t, s, "sendMessage", tt.params).message(t)
			require.Equal(t, tt.params["text"], m.Text)
			require.Equal(t, "permesso_bot", m.From.Username)
		})
	}
	require.Empty(t, s.State().Refused())
}

// TestBodies sends the same message in each encoding of the Bot API.
func TestBodies(t *testing.T) {
	s := newServer(t)
	link := s.URL + "/bot" + botapi.Token + "/sendMessage"
	form := url.Values{"chat_id": {fmt.Sprint(ricardo)}, "text": {"hello"}, "entities": {`[{"type":"bold","offset":0,"length":5}]`}}
	var parts bytes.Buffer
	w := multipart.NewWriter(&parts)
	for name, values := range form {
		require.NoError(t, w.WriteField(name, values[0]))
	}
	require.NoError(t, w.Close())
	tests := []struct {
		why, link, kind, body string
	}{
		{"in the query", link + "?" + form.Encode(), "", ""},
		{"urlencoded", link, "application/x-www-form-urlencoded", form.Encode()},
		{"multipart", link, w.FormDataContentType(), parts.String()},
		{"as JSON", link, "application/json; charset=utf-8", `{"chat_id":7001,"text":"hello","entities":[{"type":"bold","offset":0,"length":5}]}`},
		{"query and JSON", link + "?chat_id=7001", "application/json", `{"text":"hello","entities":"[{\"type\":\"bold\",\"offset\":0,\"length\":5}]"}`},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			m := post(t, tt.link, tt.kind, []byte(tt.body)).message(t)
			require.Equal(t, "hello", m.Text)
			require.Equal(t, []botapi.Entity{{Type: "bold", Length: 5}}, m.Entities)
		})
	}

	for _, tt := range []struct{ why, link, kind, body, want string }{
		{"a repeated parameter", link + "?chat_id=1", "application/json", `{"chat_id":2,"text":"x"}`, `"chat_id" is repeated`},
		{"a body that is ignored", link, "text/plain", "chat_id=7001", "ignores a body"},
		{"incomplete JSON", link, "application/json", `{"chat_id":`, "can't parse request body JSON object"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			r := post(t, tt.link, tt.kind, []byte(tt.body))
			require.Equal(t, 400, r.Status)
			require.Contains(t, r.Description, tt.want)
		})
	}
}

func TestOtherMethods(t *testing.T) {
	s := newServer(t)
	require.Contains(t, string(ask(t, s, "getMe", nil).Result), `"username":"permesso_bot"`)
	require.True(t, ask(t, s, "setMyCommands", params{
		"commands": []any{params{"command": "pending", "description": "what waits"}}, "language_code": "en",
	}).OK)
	require.Equal(t, []botapi.BotCommand{{Command: "pending", Description: "what waits"}}, s.State().Commands["en"])
}

func TestRestartKeepsAddressAndState(t *testing.T) {
	s := newServer(t)
	m := ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "x"}).message(t)
	s.Close()
	_, err := try(t.Context(), s.URL+"/bot"+botapi.Token+"/getMe", "", nil)
	require.Error(t, err, "connection refused")
	require.NoError(t, s.Listen())
	require.True(t, ask(t, s, "editMessageText", params{"chat_id": ricardo, "message_id": m.ID, "text": "y"}).OK, "the state is kept")
}

package botapi_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// document sends a file.
func document(t *testing.T, s *botapi.Server, name string, content []byte) result {
	t.Helper()
	var parts bytes.Buffer
	w := multipart.NewWriter(&parts)
	require.NoError(t, w.WriteField("chat_id", fmt.Sprint(ricardo)))
	require.NoError(t, w.WriteField("caption", "all of it"))
	file, err := w.CreateFormFile("document", name)
	require.NoError(t, err)
	_, err = file.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	r, err := try(t.Context(), s.URL+"/bot"+botapi.Token+"/sendDocument", w.FormDataContentType(), parts.Bytes())
	require.NoError(t, err)
	return r
}

func TestDocuments(t *testing.T) {
	s := newServer(t)
	m := document(t, s, "payload.txt", []byte("the whole payload")).message(t)
	require.Equal(t, "payload.txt", m.Document.FileName)
	kept, _ := s.State().Message(ricardo, m.ID)
	require.Equal(t, "the whole payload", string(kept.Document.Content))
	require.Equal(t, "all of it", kept.Caption)

	r := ask(t, s, "editMessageText", params{"chat_id": ricardo, "message_id": m.ID, "text": "x"})
	require.Equal(t, "Bad Request: there is no text in the message to edit", r.Description)

	require.Equal(t, "Bad Request: file must be non-empty", document(t, s, "empty", nil).Description)
	if os.Getenv("PERMESSO_SOAK") != "" { // it takes seconds
		const limit = 50 << 20
		require.Equal(t, http.StatusOK, document(t, s, "fits", make([]byte, limit)).Status)
		require.Equal(t, http.StatusRequestEntityTooLarge, document(t, s, "large", make([]byte, limit+1)).Status)
		require.Equal(t, http.StatusRequestEntityTooLarge, document(t, s, "huge", make([]byte, limit+1<<17)).Status)
	}
}

func TestEdits(t *testing.T) {
	s := newServer(t)
	card := ask(t, s, "sendMessage", params{"chat_id": ricardo, "text": "a card", "reply_markup": buttons(1, params{"text": "yes", "callback_data": "y"})}).message(t)
	edited := ask(t, s, "editMessageText", params{"chat_id": ricardo, "message_id": card.ID, "text": "a card"}).message(t)
	require.Nil(t, edited.Keyboard, "an edit without buttons removes them, which is a change")
	require.NotZero(t, edited.EditDate)
	kept, _ := s.State().Message(ricardo, card.ID)
	require.Equal(t, 1, kept.Edits)
}

func TestAutomaticEntities(t *testing.T) {
	s := newServer(t)
	tests := []struct {
		why, text string
		entities  any
		want      []string
	}{
		{"a link", "see https://evil.test/x now", nil, []string{"url 4+19"}},
		{"a bare host", "see evil.test", nil, []string{"url 4+9"}},
		{"a person", "ask @ricardo", nil, []string{"mention 4+8"}},
		{"a command", "or /approve", nil, []string{"bot_command 3+8"}},
		{"a path is no link", "a/b", nil, nil},
		{"an address", "to a@b.test", nil, []string{"email 3+8"}},
		{"tags", "#tag $USD", nil, []string{"hashtag 0+4", "cashtag 5+4"}},
		{"in UTF-16", "🔐 @ricardo", nil, []string{"mention 3+8"}},
		{"code is not scanned", "see https://evil.test/x", entities(entity("code", 4, 19)), []string{"code 4+19"}},
		{"bold is scanned", "@ricardo", entities(entity("bold", 0, 8)), []string{"bold 0+8", "mention 0+8"}},
		{"plain words", "approve a7f3b2c1: 12:05, 3 < 4", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			p := params{"chat_id": ricardo, "text": tt.text}
			if tt.entities != nil {
				p["entities"] = tt.entities
			}
			var got []string
			for _, e := range ask(t, s, "sendMessage", p).message(t).Entities {
				got = append(got, fmt.Sprintf("%s %d+%d", e.Type, e.Offset, e.Length))
			}
			require.Equal(t, tt.want, got)
		})
	}
}

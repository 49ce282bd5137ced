package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

const (
	tapCount     = 1000 // decided requests
	cardsPerChat = 2    // Telegram's burst limit of three messages: two cards and the first edit
	ann          = 1001
	firstChat    = -1001000000000
)

// BenchmarkTap measures the time from a tap to the response, with the real program and
// a local Bot API server. It also measures the server's part: the time until a client
// that only polls gets a tap.
func BenchmarkTap(b *testing.B) {
	b.Run("tap in Telegram to response visible", func(b *testing.B) {
		api := &botapi.Server{}
		require.NoError(b, api.Listen())
		defer api.Close()
		api.AddUser(botapi.User{ID: ann, FirstName: "Ann"})
		for i := range tapCount / cardsPerChat {
			api.AddChat(botapi.Chat{ID: firstChat - int64(i), Type: botapi.Supergroup, Title: "bench"})
		}
		for b.Loop() {
			own := ownLatency(b, api)
			r := newRig(b)
			r.daemon(r.tapConfig(api.URL))
			var took []time.Duration
			for n := range tapCount {
				took = append(took, r.tap(api, n))
			}
			reportMS(b, "p50", quantile(took, 0.5), "<=25")
			reportU(b, "p50", quantile(took, 0.5), "")
			reportU(b, "p99", quantile(took, 0.99), "<=120")
			reportMS(b, "of which the Bot API server, p50", own, "")
		}
	})
}

func (r *rig) tapConfig(server string) string {
	token := filepath.Join(r.Layout.Home, "token")
	var config strings.Builder
	fmt.Fprintf(&config, "[channels.telegram]\nserver_url = %q\ntoken_file = %q\n[approvers.ann]\ntelegram = %d\n"+
		"[tools.none]\ncapability = \"channel:out\"\nargs = { text = \"text\" }\nhandler = { kind = \"none\" }\n", server, token, ann)
	for i := range tapCount / cardsPerChat {
		fmt.Fprintf(&config, "[workspaces.w%d]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\ntelegram = { chat_id = %d }\n", i, firstChat-int64(i))
	}
	require.NoError(r.b, os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600))
	return config.String()
}

// tap submits a request, waits for the card, taps, and waits for the response.
func (r *rig) tap(api *botapi.Server, n int) time.Duration {
	ws, chat, request := fmt.Sprintf("w%d", n/cardsPerChat), firstChat-int64(n/cardsPerChat), id(n)
	r.Await("daemon started", func() bool { _, err := os.Stat(r.Layout.Requests(ws)); return err == nil })
	r.WriteRequest(approval.Key{Workspace: ws, ID: request}, fmt.Sprintf(`{"request_id":%q,"tool_name":"none","request_data":{"text":"Meeting at 5"}}`, request))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	var card botapi.Message
	err := api.Await(ctx, func(s botapi.State) bool {
		for _, card = range s.FromBot(chat) {
			if strings.Contains(card.Text, approval.ShortID(request)) && card.Keyboard != nil {
				return true
			}
		}
		return false
	})
	require.NoError(r.b, err, "wait for card")
	time.Sleep(50 * time.Millisecond) // a person is not faster; the daemon has stored the card
	began := time.Now()
	_, err = api.Tap(ann, chat, card.ID, "✅ Once")
	require.NoError(r.b, err)
	response := filepath.Join(r.Layout.Responses(ws), request+".json")
	r.Await("response", func() bool { _, err := os.Stat(response); return err == nil })
	return time.Since(began)
}

// ownLatency measures the time from a tap to a client that only polls for updates.
func ownLatency(b *testing.B, api *botapi.Server) time.Duration {
	var took []time.Duration
	offset := int64(0)
	for range tapCount {
		got := make(chan error, 1)
		go func() { got <- poll(api, offset, 30) }()
		time.Sleep(5 * time.Millisecond) // until it waits
		began := time.Now()
		t := api.TapData(ann, firstChat, 1, "1:none")
		require.NoError(b, <-got)
		took = append(took, time.Since(began))
		offset = t.UpdateID + 1
	}
	require.NoError(b, poll(api, offset, 0))
	return quantile(took, 0.5)
}

func poll(api *botapi.Server, offset int64, seconds int) error {
	address := fmt.Sprintf("%s/bot%s/getUpdates?offset=%d&timeout=%d", api.URL, botapi.Token, offset, seconds)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

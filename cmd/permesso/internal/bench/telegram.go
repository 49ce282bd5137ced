package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
	"github.com/permesso-dev/permesso/ipc"
)

const (
	tapCount     = 90 // decided requests
	cardsPerChat = 3  // Telegram's burst limit; after it one per second
	ann          = 1001
	firstChat    = -1001000000000
	tapTarget    = 25 * time.Millisecond
)

// tap measures the time from a tap to the response, with the real program and a
// local Bot API server. It also measures the server's part: the time until a client
// that only polls gets a tap.
func (b *bench) tap() error {
	api := &botapi.Server{}
	if err := api.Listen(); err != nil {
		return err
	}
	defer api.Close()
	api.AddUser(botapi.User{ID: ann, FirstName: "Ann"})
	for i := range tapCount / cardsPerChat {
		api.AddChat(botapi.Chat{ID: firstChat - int64(i), Type: botapi.Supergroup, Title: "bench"})
	}
	own, err := ownLatency(api)
	if err != nil {
		return err
	}
	r, err := b.newRig("tap")
	if err != nil {
		return err
	}
	config, err := tapConfig(r.layout, api.URL)
	if err != nil {
		return err
	}
	c, err := b.daemon(r, config)
	if err != nil {
		return err
	}
	defer stopDaemon(c)
	var took []time.Duration
	for n := range tapCount {
		d, err := tapOnce(r.layout, api, n)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	p50, p99 := quantile(took, 0.5), quantile(took, 0.99)
	b.add("tap in Telegram → response visible, p50", b.inUnits(p50), "≤ "+tapTarget.String(), p50 <= tapTarget)
	b.add("tap in Telegram → response visible, p99", b.inUnits(p99), "", true)
	b.add("… of which the Bot API server, p50", own.Round(time.Microsecond).String(), "", true)
	return nil
}

func tapConfig(l ipc.Layout, server string) (string, error) {
	token := filepath.Join(l.Home, "token")
	var config strings.Builder
	fmt.Fprintf(&config, "[channels.telegram]\nserver_url = %q\ntoken_file = %q\n[approvers.ann]\ntelegram = %d\n"+
		"[tools.none]\nhandler = { kind = \"none\" }\n", server, token, ann)
	for i := range tapCount / cardsPerChat {
		fmt.Fprintf(&config, "[workspaces.w%d]\napprovers = [\"ann\"]\nchannels = [\"telegram\"]\ntelegram = { chat_id = %d }\n", i, firstChat-int64(i))
	}
	return config.String(), os.WriteFile(token, []byte(botapi.Token+"\n"), 0o600)
}

// tapOnce submits a request, waits for the card, taps, and waits for the response.
func tapOnce(l ipc.Layout, api *botapi.Server, n int) (time.Duration, error) {
	ws, chat, request := fmt.Sprintf("w%d", n/cardsPerChat), firstChat-int64(n/cardsPerChat), id(n)
	requests := l.Requests(ws)
	if err := waitFor("daemon started", func() bool { _, err := os.Stat(requests); return err == nil }); err != nil {
		return 0, err
	}
	temp := filepath.Join(requests, "."+request)
	if err := os.WriteFile(temp, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"none"}`, request), 0o600); err != nil {
		return 0, err
	}
	if err := os.Rename(temp, filepath.Join(requests, request+".json")); err != nil {
		return 0, err
	}
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
	if err != nil {
		return 0, fmt.Errorf("wait for card: %w", err)
	}
	time.Sleep(50 * time.Millisecond) // a person is not faster; the daemon has stored the card
	began := time.Now()
	if _, err := api.Tap(ann, chat, card.ID, "✅ Once"); err != nil {
		return 0, err
	}
	response := filepath.Join(l.Responses(ws), request+".json")
	err = waitFor("response", func() bool { _, err := os.Stat(response); return err == nil })
	return time.Since(began), err
}

// ownLatency measures the time from a tap to a client that only polls for updates.
func ownLatency(api *botapi.Server) (time.Duration, error) {
	var took []time.Duration
	offset := int64(0)
	for range tapCount {
		got := make(chan error, 1)
		go func() { got <- poll(api, offset, 30) }()
		time.Sleep(5 * time.Millisecond) // until it waits
		began := time.Now()
		t := api.TapData(ann, firstChat, 1, "1:none")
		if err := <-got; err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		offset = t.UpdateID + 1
	}
	return quantile(took, 0.5), poll(api, offset, 0)
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

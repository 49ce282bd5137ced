package telegram_test

import (
	"testing"

	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

func TestConformance(t *testing.T) {
	channeltest.Run(t, func(t *testing.T) channeltest.Fixture {
		h := newRig(t)
		adapter := h.channel().Adapter
		telegram.DisableLimits(adapter)
		return channeltest.Fixture{
			Adapter: adapter, At: at(family, 0), Approver: deliver.NumberID(ann), Stranger: deliver.NumberID(eve),
			Shown: func() (all []channeltest.Shown) {
				for _, m := range h.api.State().FromBot(family) {
					shown := channeltest.Shown{ID: deliver.NumberID(int64(m.ID)), Text: m.Text + m.Caption, Buttons: map[string]string{}}
					for _, text := range m.Buttons() {
						b, _ := m.Button(text)
						shown.Buttons[text] = b.CallbackData
					}
					if m.Document != nil {
						shown.Text += string(m.Document.Content)
					}
					all = append(all, shown)
				}
				return all
			},
			Tap: func(by, id deliver.ID, data string) string {
				return h.waitForAnswer(h.api.TapData(by.Number(), family, int(id.Number()), data)).Text
			},
			Say: func(by deliver.ID, text string, to deliver.ID) {
				if to == "" {
					h.api.Say(by.Number(), family, text)
					return
				}
				h.api.Reply(by.Number(), family, int(to.Number()), text)
			},
			Fail: func() { h.api.Fail("sendMessage", botapi.Fault{Kind: botapi.TooMany, Times: 2}) },
		}
	})
}

package tui

import (
	"testing"

	"github.com/permesso-dev/permesso/chat/messagestest"
)

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[messages](t, "../messages", "tui")
}

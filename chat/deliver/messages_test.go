package deliver

import (
	"testing"

	"github.com/permesso-dev/permesso/chat/messagestest"
)

func TestEveryMessageIsReadAndWritten(t *testing.T) {
	messagestest.RequireKeys[catalog](t, "../messages", "deliver")
}

package daemon

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestLogLevelAndFormatChangeWhileRunning(t *testing.T) {
	var b bytes.Buffer
	l, w := NewLog(&b, "warn", "auto")
	l.Info().Msg("quiet")
	require.Empty(t, b.String())
	w.set("debug", "console")
	l.Debug().Str("ws", "a b").Str("id", "ff").Int("keys", 3).Msg("loud")
	require.Regexp(t, `^\d\d:\d\d:\d\d DBG loud ws="a b" id=ff keys=3\n$`, b.String())
	b.Reset()
	w.set("nonsense", "json")
	l.Debug().Msg("quiet")
	l.Info().Msg("loud")
	require.Regexp(t, `^\{"level":"info","time":"[^"]+","message":"loud"\}\n$`, b.String())
	require.Equal(t, zerolog.InfoLevel, zerolog.Level(w.level.Load()))
}

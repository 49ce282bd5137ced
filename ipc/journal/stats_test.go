package journal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindow(t *testing.T) {
	var w window
	at := func(second int64) time.Time { return time.Unix(1_000_000+second, 0) }
	w.add(at(0), Counts{1, 1, 10})
	w.add(at(0), Counts{2, 1, 20})
	w.add(at(30), Counts{4, 1, 40})
	require.Equal(t, Counts{7, 3, 70}, w.sum(at(59)))
	require.Equal(t, Counts{4, 1, 40}, w.sum(at(60)), "the first second is over")
	w.add(at(60), Counts{8, 1, 80}) // takes the place of the first
	require.Equal(t, Counts{12, 2, 120}, w.sum(at(60)))
	require.Equal(t, Counts{}, w.sum(at(0)), "the clock was set back")
}

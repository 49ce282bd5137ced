package tui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

// A key counts after three answers, of which the last was asked for 400 ms after the second.
func TestBarrierSteps(t *testing.T) {
	b := &barrier{}
	require.NotNil(t, b.show("card", start))
	require.Nil(t, b.show("card", start), "the same again")
	require.False(t, b.onScreen())
	require.NotNil(t, b.answered(start), "asks again: the frame may not have been written with the first query")
	require.False(t, b.onScreen())
	require.NotNil(t, b.answered(start), "waits")
	require.True(t, b.onScreen())
	late := start.Add(time.Hour)
	require.False(t, b.counts(late))
	require.Nil(t, b.settled(settleMsg{start.Add(-time.Second)}), "that was for another card")
	require.NotNil(t, b.settled(settleMsg{start}))
	require.False(t, b.counts(late), "keys that were typed before may still come")
	b.answered(start)
	require.True(t, b.counts(start.Add(settleTime)))
	require.False(t, b.counts(start.Add(settleTime-1)))
	b.show("another", late)
	require.False(t, b.counts(late.Add(time.Hour)))
}

// The answers to queries about an earlier card say nothing of this one.
func TestBarrierOfAnotherCard(t *testing.T) {
	b := &barrier{}
	b.show("one", start)
	b.show("two", start)
	b.show("three", start)
	require.Nil(t, b.answered(start))
	require.Nil(t, b.answered(start))
	require.Equal(t, stepWriting, b.step)
	require.NotNil(t, b.answered(start))
	require.Equal(t, stepShowing, b.step)
}

// More answers than queries were typed: it begins again.
func TestBarrierWithForgedAnswers(t *testing.T) {
	b := &barrier{}
	b.show("card", start)
	for range 2 {
		b.answered(start)
	}
	b.settled(settleMsg{start})
	for range 3 {
		b.answered(start)
	}
	require.False(t, b.counts(start.Add(time.Hour)))
	b.show("another", start)
	b.answered(start)
	require.Equal(t, stepWriting, b.step, "that was to the query before")
	b.answered(start)
	require.Equal(t, stepShowing, b.step)
}

// A terminal that does not answer begins again. Then its card must be on the screen for longer.
func TestBarrierWithoutAnswers(t *testing.T) {
	b := &barrier{}
	b.show("card", start)
	require.Nil(t, b.lost(silenceMsg{start.Add(-1)}, start))
	require.NotNil(t, b.lost(silenceMsg{start}, start.Add(silence)))
	require.True(t, b.silent)
	for range 2 {
		b.answered(start)
	}
	b.settled(settleMsg{start.Add(silence)})
	b.answered(start)
	require.True(t, b.counts(start.Add(2*silence)))
	require.False(t, b.silent)
	require.Nil(t, b.lost(silenceMsg{start.Add(silence)}, start.Add(2*silence)), "it has answered")
}

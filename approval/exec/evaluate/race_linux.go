//go:build race

package evaluate

// more: the race detector itself takes more than an evaluation may.
const more = 1 << 50

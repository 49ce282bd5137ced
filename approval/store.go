package approval

import "errors"

// How says how a document is written. The zero value is the safe one.
type How uint8

// The three ways to write.
const (
	Durable  How = iota // neither a kill nor a power cut takes it away afterwards
	Volatile            // visible, not synced: losing it is harmless
	Replace             // durable, over whatever is there
)

// ErrRefused marks a request that is no ordinary file within its limits. The
// errors that wrap it say what is wrong, in words for the agent.
var ErrRefused = errors.New("refused")

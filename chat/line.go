package chat

// LineKind says what a line of a card is, so that each channel can show it in its
// own way.
type LineKind uint8

// The kinds of lines.
const (
	LineText      LineKind = iota
	LineLabel              // names what follows
	LineCode               // exact text
	LineAdded              // a line that is new
	LineRemoved            // a line that is gone
	LineSame               // a line that stays
	LineWarn               // begins with ⚠
	LineStrong             // what matters most
	LineRecipient          // one of several recipients, behind its number
)

// Line is one line of a card.
type Line struct {
	Kind LineKind
	Text string
}

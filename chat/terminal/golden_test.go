package terminal

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

var _ = flag.Bool("update", false, "rewrite the golden messages")

// A card of each kind on the terminal, with marks for its colors.
func TestGoldenCards(t *testing.T) {
	for _, k := range cardtest.Kinds() {
		goldenCard(t, k, "en", "terminal_"+k.Name+".txt")
		if slices.Contains([]string{"mail", "edit"}, k.Name) {
			goldenCard(t, k, "it", "terminal_"+k.Name+".it.txt")
		}
	}
}

func goldenCard(t *testing.T, k cardtest.Kind, language, name string) {
	var out bytes.Buffer
	style := cardtest.Style(t, true)
	style.Language, style.Foot = language, "log 1042 9f3c"
	v := (&Channel{Out: &out, Style: style, Color: true}).newView()
	v.card(approval.StoredPending{Pending: k.Pending})
	v.flush()
	cardtest.Golden(t, name, colorNames.Replace(out.String()))
}

var colorNames = strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "[bold] ", "\x1b[2m", "[dim] ",
	"\x1b[31m", "[red] ", "\x1b[32m", "[green] ", "\x1b[33m", "[yellow] ", "\x1b[", "[ESC ")

package tui

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/cardtest"
)

var update = flag.Bool("update", false, "rewrite the screens of README.md")

// The screens of README.md are those that a person sees.
func TestReadmeScreens(t *testing.T) {
	d := newDriver(t, "en", 80, 20, Page{Key: "H", Name: "history"}, Page{Key: "g", Name: "grants"}, Page{Key: "t", Name: "taints"}, Page{Key: "p", Name: "pauses"})
	for _, k := range cardtest.Kinds() {
		d.gate.add(k.Pending)
	}
	d.refresh()
	screens := map[string]string{}
	d.press("down", "down", "down", "down")
	screens["list"] = d.screen()
	d.press("enter")
	d.settle()
	screens["detail"] = d.screen()
	d.press("w", "enter")
	d.write("approve")
	d.press("enter")
	d.refresh()
	d.settle()
	screens["decided"] = d.screen()
	require.Len(t, d.gate.inputs, 1)

	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := string(b)
	for name, screen := range screens {
		block := regexp.MustCompile("(?s)(<!-- screen " + name + " -->\n```text\n).*?(```\n)")
		require.Regexp(t, block, text)
		text = block.ReplaceAllString(text, "${1}"+strings.ReplaceAll(screen, "$", "$$")+"${2}")
	}
	if *update {
		require.NoError(t, os.WriteFile("README.md", []byte(text), 0o644))
		return
	}
	require.Equal(t, string(b), text, "go test ./chat/tui -run ReadmeScreens -update rewrites them")
}

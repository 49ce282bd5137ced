package console

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval/read"
)

//go:embed help.toml
var helpFile []byte

// HelpTexts are the texts of help.toml, by the names of commands.
var HelpTexts = sync.OnceValue(func() (texts map[string]struct{ Long, Example string }) {
	if err := toml.Unmarshal(helpFile, &texts); err != nil {
		panic(err) // they are part of the program
	}
	return texts
})

// AddHelp gives a command its texts, if it has none of its own. Most runs show none, so only help reads them.
func AddHelp(c *cobra.Command) {
	all, statuses := HelpTexts(), read.Statuses()
	operator := all["OPERATOR"].Long
	if c.Flags().Lookup("operator") == nil {
		operator = "" // a program without the daemon's commands
	}
	if text, ok := all[strings.TrimPrefix(c.CommandPath(), "permesso ")]; ok && c.Long == "" {
		c.Example = text.Example
		c.Long = strings.NewReplacer("@ID@", all["ID"].Long, "@ENDPOINT@", all["ENDPOINT"].Long, "@REPLAY@", all["REPLAY"].Long, "@OPERATOR@", operator, "@TIME@", TimeHelp,
			"@STATUSES@", strings.Join(statuses[:7], " ")+"\n"+strings.Join(statuses[7:], " ")).Replace(text.Long)
	}
}

// SetHelp makes root print its help, and that of all commands below it, as wide as the output is.
func (a *Console) SetHelp(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		AddHelp(c)
		var text strings.Builder
		c.SetOut(&text)
		show(c, args)
		fmt.Fprint(a.Out, WrapText(text.String(), Width(a.Out)))
	})
}

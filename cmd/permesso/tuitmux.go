package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// tmuxLines are lines of .tmux.conf. They may be read again: the status line gets its part once.
const tmuxLines = `# permesso: the prefix key, then P, shows the oldest request (tmux 3.2 or later)
bind-key P display-popup -E -w 90% -h 90% '@ tui --next'
# what waits, before the rest of the status line
set-option -g status-interval 5
set-option -g status-right-length 80
if-shell -F '#{m:* status --line)*,#{status-right}}' '' "set-option -gF status-right '##(@ status --line) #{status-right}'"
# for y, which copies: programs may set the clipboard
# set-option -s set-clipboard on`

func (a *app) tuiTmuxCmd() *cobra.Command {
	return &cobra.Command{
		Use: "tmux", Short: "Print lines for .tmux.conf", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			command, err := a.tmuxCommand()
			if err != nil {
				return err
			}
			a.Say("%s", strings.ReplaceAll(tmuxLines, "@", command))
			return nil
		},
	}
}

// tmuxWord is a word that neither tmux, in a format, nor a shell changes.
var tmuxWord = regexp.MustCompile(`^[A-Za-z0-9_./+=-]+$`)

// tmuxCommand is this program with the HOME and the configuration that were named: the server of tmux has another
// environment.
func (a *app) tmuxCommand() (string, error) {
	places, err := a.NamedPlaces()
	if err != nil {
		return "", err
	}
	for _, word := range places {
		if !tmuxWord.MatchString(word) {
			return "", console.Fail(console.ExitUsage, "give it another name, or write the lines by hand", "%q cannot stand in .tmux.conf", word)
		}
	}
	return strings.Join(append([]string{"permesso"}, places...), " "), nil
}

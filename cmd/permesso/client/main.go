// Command client is the program permesso for macOS and Windows, where the daemon cannot run: the commands of an
// agent, which reach a daemon elsewhere by HTTP or through two folders, and the check of a receipt. Its commands,
// help and exit codes are those of the complete program.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/agent"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/receipt"
)

// version, commit and date are set by the linker.
var version, commit, date = "dev", "", ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &console.Console{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Version: version, Told: &sync.Map{}}
	code := a.Run(ctx, root(a), os.Args[1:])
	stop()
	os.Exit(code)
}

const about = `An approval gate for AI agents: may I?

These are the commands of an agent. A rule or a person on the daemon's host, which runs Linux, approves what they
ask for. They reach it by HTTP, with PERMESSO_URL and PERMESSO_KEY, or through two folders that are shared with it.

Exit codes: 0 done, or approved and run; 1 error; 2 invalid command line; 3 ended without running;
4 started, and failed or was interrupted (cancel: it had run); 5 --timeout expired; 6 verification failed.`

func root(a *console.Console) *cobra.Command {
	c := &cobra.Command{
		Use:           "permesso",
		Short:         "Ask an approval gate for AI agents: may I?",
		Long:          about,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		// The flags of commands that are not here are not known either.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return console.Fail(console.ExitUsage, "install permesso on a Linux host, and name it here by PERMESSO_URL and PERMESSO_KEY",
				"%s: the daemon and its commands need Linux, this is %s; here are %s", args[0], system(), names(c))
		},
	}
	c.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON")
	c.AddCommand(
		agent.Request(a),
		agent.Run(a),
		agent.Wait(a),
		agent.Cancel(a, nil),
		agent.Hook(a, nil, nil),
		console.Group(&cobra.Command{Use: "receipt", Short: "Verify the receipt of an approved request"}, agent.VerifyReceipt(a, noHome)),
		&cobra.Command{
			Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				v := console.NewVersion(version, commit, date)
				return a.Print(v, strings.Join(v.Lines(), "\n"))
			},
		},
	)
	a.SetHelp(c)
	return c
}

// noHome has no keys: there is no daemon here.
func noHome() console.Receipts {
	return console.Receipts{Responses: "the folder of responses", Keys: func() (*receipt.Verifier, error) {
		return nil, console.Wrap(console.ExitUsage, errors.New("the public key is on the daemon's host"), "copy HOME/keys/signing.pub from there, and give it: --key FILE")
	}}
}

// system is how people call this operating system.
func system() string {
	switch runtime.GOOS {
	case "darwin":
		return "macOS"
	case "windows":
		return "Windows"
	}
	return runtime.GOOS
}

// names lists the commands that are here.
func names(c *cobra.Command) string {
	var all []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, sub.Name())
		}
	}
	return strings.Join(all, ", ")
}

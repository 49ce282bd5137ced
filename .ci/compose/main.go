// Command compose checks a compose file as Compose itself does: against the
// schema of the Compose Specification, and for what only its loader sees. It
// prints the project as it was understood.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
}

func check(file string) error {
	options, err := cli.NewProjectOptions([]string{file})
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	b, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}

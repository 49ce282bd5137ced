package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// socketHelper runs in a copy of this program under another UID.
func socketHelper(what string) int {
	c, err := net.Dial("unix", os.Getenv("PERMESSO_SOCKET"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	switch what {
	case "talk":
		_, _ = io.Copy(c, os.Stdin)
		_ = c.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(os.Stdout, c)
	case "hold": // one more than allowed
		var open []net.Conn
		for range 12 {
			c, err := net.Dial("unix", os.Getenv("PERMESSO_SOCKET"))
			if err != nil {
				fmt.Println(err)
				return 1
			}
			open = append(open, c)
		}
		fmt.Println("holding", len(open))
		_, _ = io.Copy(io.Discard, os.Stdin) // until stdin closes
	}
	return 0
}

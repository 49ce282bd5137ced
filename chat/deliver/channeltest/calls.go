package channeltest

import (
	"slices"
	"strconv"
	"sync"
)

// Calls are the calls of a simulated service, and the messages that they left. The service locks it.
type Calls[M any] struct {
	sync.Mutex
	Kept []M // oldest first

	failing []int // the next calls get these status codes
	refused []string
}

// Fail makes the next calls fail with these status codes.
func (c *Calls[M]) Fail(codes ...int) {
	c.Lock()
	defer c.Unlock()
	c.failing = append(c.failing, codes...)
}

// Messages returns the messages now.
func (c *Calls[M]) Messages() []M {
	c.Lock()
	defer c.Unlock()
	return slices.Clone(c.Kept)
}

// Refused returns why calls were refused.
func (c *Calls[M]) Refused() []string {
	c.Lock()
	defer c.Unlock()
	return slices.Clone(c.refused)
}

// Take handles a call, unless it is made to fail, and notes a refusal. The lock is held.
func (c *Calls[M]) Take(handle func() (code int, why string)) (code int, why string) {
	if len(c.failing) > 0 {
		code, why, c.failing = c.failing[0], "made to fail", c.failing[1:]
	} else {
		code, why = handle()
	}
	if why != "" {
		c.refused = append(c.refused, strconv.Itoa(code)+" "+why)
	}
	return code, why
}

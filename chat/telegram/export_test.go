package telegram

// Eager has a channel send at once, and a card for everything, so that tests take no time.
func Eager(c *Channel) { c.eager = true }

// Calm has a channel send at once, and digests where there is a flood.
func Calm(c *Channel) { c.eager, c.calm = true, true }

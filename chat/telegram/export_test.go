package telegram

// Eager has a channel send at once, and a card for everything, so that tests take no time.
func Eager(c *Channel) { c.eager = true }

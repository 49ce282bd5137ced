package telegram

// DisableLimits has a channel send at once, and a card for everything, so that tests take no time.
func DisableLimits(c *Channel) { c.noLimits = true }

// DisableRateLimits has a channel send at once, and digests where there is a flood.
func DisableRateLimits(c *Channel) { c.noLimits, c.floodLimit = true, true }
